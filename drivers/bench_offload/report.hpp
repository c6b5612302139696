#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "drivers/bench_offload/bench.hpp"
#include "execution/error.hpp"
#include "results/result_set.hpp"

namespace stowage::drivers {

/// Of the result set's default path (benchmark_path).
inline constexpr std::string_view kOffloadPath = "offload";

/// Prints a row for each plan, and leaves the result set: raw step times as /samples/offload/<plan>
/// with bytes and predictions as attributes. Entry i of every plan is of the same round.
class OffloadReport {
 public:
  /// Collective over `world`, as finish() is. Rank 0 prints and writes, for all.
  /// @param json of JSON lines, or empty  @throws Error (exit 2) if a result cannot be written
  OffloadReport(const parallel::Communicator& world, const inputs::Deck& deck,
                const std::string& json, const run::Machine& machine, int argc,
                const char* const* argv);

  /// Validates: every plan gave the bits of the one that keeps all, and kept its promise of memory.
  /// @param outcomes the first is of the plan that keeps all, op by op
  execution::Exit finish(const std::vector<OffloadOutcome>& outcomes, const BenchOffload& bench);

 private:
  void print(const OffloadOutcome& outcome, const OffloadOutcome& keep) const;
  void add(const OffloadOutcome& outcome, const OffloadOutcome& keep);
  void compare_modes(const std::vector<OffloadOutcome>& outcomes);
  execution::Exit judge(const std::vector<OffloadOutcome>& outcomes, const BenchOffload& bench);

  const parallel::Communicator& world_;
  std::unique_ptr<results::ResultSet> set_;  ///< on rank 0
};

}  // namespace stowage::drivers
