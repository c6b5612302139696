#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "drivers/bench_comm/bench.hpp"
#include "execution/error.hpp"
#include "results/result_set.hpp"

namespace stowage::drivers {

/// Of the result set's default path (benchmark_path).
inline constexpr std::string_view kCommPath = "comm";

/// Lines as nccl-tests prints them, the library in front: size, count, type, reduction and root;
/// then time, rates and wrong elements out of place and in place. One line for each library at each
/// size. @param rows of one group and kind
std::string comm_table(const std::vector<CommRow>& rows);

/// Where a row lies in the result set: "comm/data/all_reduce/nccl/in_place/1048576_bytes".
std::string path(const CommRow& row);

/// Prints and stores what BenchComm measures, and judges it. Rank 0 prints and writes, for all.
class CommReport {
 public:
  /// Collective over `world`, as finish() is.
  /// @param json of JSON lines, or empty  @throws Error (exit 2) if a result cannot be written
  CommReport(const parallel::Communicator& world, const inputs::Deck& deck, const std::string& json,
             const run::Machine& machine, int argc, const char* const* argv);

  /// Rows of one group and kind; on rank 0.
  void add(const std::vector<CommRow>& rows);
  /// Validates: no element of any collective was wrong.
  execution::Exit finish();

 private:
  /// nccl-tests' last lines: wrong elements, and the mean bus bandwidth of all that it printed.
  std::string summary_text() const;

  /// Bytes that a rank sends at least, and median times.
  struct Points {
    std::vector<double> bytes, time_s;
  };

  void keep(const CommRow& row);
  void fit(const std::string& tag, const Points& points);

  const parallel::Communicator& world_;
  std::unique_ptr<results::ResultSet> set_;  ///< on rank 0
  results::Metric headline_;                 ///< bus bandwidth of ours, of the first kind's largest
  std::map<std::string, std::int64_t> wrong_;  ///< by group, kind and library
  std::map<std::string, Points> of_ours_;      ///< by group: of all kinds
  std::vector<double> bus_bytes_per_s_;        ///< of every way of ours at every size
};

}  // namespace stowage::drivers
