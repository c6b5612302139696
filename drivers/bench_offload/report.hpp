#pragma once

#include <memory>
#include <vector>

#include "drivers/bench_offload/bench.hpp"
#include "execution/error.hpp"
#include "results/result_set.hpp"

namespace stowage::drivers {

/// Prints a row for each plan as it is done, and leaves the result set: raw step times as
/// /samples/offload/<plan> with bytes and predictions as attributes.
class OffloadReport {
 public:
  /// @throws Error (exit 2) if the result cannot be written
  OffloadReport(const inputs::Deck& deck, const results::RankInfo& rank, int argc,
                const char* const* argv);

  void add(const OffloadOutcome& outcome);
  /// Validates: every plan gave the bits of the one that keeps all, and kept its promise of memory.
  execution::Exit finish(const std::vector<OffloadOutcome>& outcomes, double fit);

 private:
  void print(const OffloadOutcome& outcome) const;

  std::unique_ptr<results::ResultSet> set_;
};

}  // namespace stowage::drivers
