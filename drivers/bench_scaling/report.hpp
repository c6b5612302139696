#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "execution/error.hpp"
#include "inputs/deck/deck.hpp"
#include "results/result_set.hpp"

namespace stowage::drivers {

/// Prints a row for each point and leaves the result set: step times as /samples/scaling/<point>.
/// Used on rank 0.
class ScalingReport {
 public:
  /// @throws Error (exit 2) if the result cannot be written
  ScalingReport(const inputs::Deck& deck, const results::ResultHeader& header,
                const std::filesystem::path& path);

  /// Prints a point and keeps it. The first of a scale and mode is what the others stand beside.
  void add(results::Samples point);
  void refuse(const std::string& point, const std::string& why);

  /// Validates: the same batch gives the same loss on every layout, the same layout the same bits
  /// in every graph mode.
  /// @param left points that were not measured since the job was stopped before
  execution::Exit finish(std::size_t left);

 private:
  const results::Samples& base(const results::Samples& point) const;
  void add_metrics(const results::Samples& point);
  void print(const results::Samples& point) const;

  const inputs::Deck& deck_;
  results::ResultSet set_;
  std::vector<results::Samples> points_;
  double worst_prediction_ = 0;
};

}  // namespace stowage::drivers
