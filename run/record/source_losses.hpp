#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "inputs/data/run_data.hpp"
#include "results/json_log.hpp"
#include "results/result_set.hpp"
#include "run/step/loop.hpp"

namespace stowage::run {

/// The training loss of each source of the data: the mean over its counted targets of some steps.
class SourceLosses {
 public:
  /// Adds the series source_loss, with a column for each source.
  SourceLosses(results::ResultSet& set, const inputs::Data& data);

  /// Adds what a step tells, unless it was skipped.
  void add(const StepReport& report);
  /// Keeps the means of the steps since the last call; NaN of a source without a target in them.
  /// @return them and the numbers of targets, as loss.NAME and targets.NAME
  results::Fields keep(std::int64_t step);

 private:
  std::vector<std::string> names_;
  std::vector<std::array<double, 2>> sums_;  ///< of losses, and targets
  results::Series& series_;
};

}  // namespace stowage::run
