#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "execution/executor.hpp"
#include "execution/op_timer.hpp"
#include "forecast/plan/exposure.hpp"
#include "offload/summary.hpp"
#include "results/result_set.hpp"
#include "results/trace.hpp"
#include "run/step/copies.hpp"

namespace stowage::run {

/// All ops of a step that do the same in different layers and microbatches, on one queue.
struct OpTotal {
  std::string kind;             ///< "mamba/scan_backward"
  std::string queue;            ///< "compute"
  std::string collective = {};  ///< "all_reduce", of ops that communicate
  std::int64_t calls = 0;       ///< in a step
  execution::Cost cost;         ///< of all calls of a step; FLOPs by the documents of the last one
  std::vector<double> time_s;   ///< of all calls, one entry for each timed step
};

/// Times the steps of a run op by op, and says where the time went on this rank.
class Profile {
 public:
  /// @param ranks of the job: all of them time the same steps, so that each issues them op by op
  Profile(execution::Backend& backend, int ranks) : backend_(backend), ranks_(ranks) {}

  /// Times the next step that `executor` issues: none is under way. If it is done again, its last
  /// time counts.
  void begin(execution::Executor& executor);
  /// Waits for that step, and takes its times.
  /// @param pairs its (query, key) pairs within documents, as a part of those that were recorded
  void end(double pairs);

  bool empty() const { return times_.empty(); }
  /// Longest first.
  std::vector<OpTotal> totals() const;
  /// A table of the totals for people.
  std::string text() const;
  /// Raw times as /samples/ops/<kind>, with calls, flops and bytes, and as
  /// /samples/communication/<queue>/busy and exposed; what the copies of the last timed step did as
  /// metrics.
  void add_to(results::ResultSet& set) const;
  /// The last timed step, a row for each queue.
  /// @param rank that this one is in the trace
  /// @param offset_s taken off its times, which are those of this rank's steady clock
  results::Trace trace(int rank, double offset_s) const;

 private:
  double span_s() const;
  std::string communication_text() const;
  std::vector<offload::ModuleSummary> modules() const;

  execution::Backend& backend_;
  int ranks_;
  execution::Executor* executor_ = nullptr;  ///< of the step under way, and of the last one
  /// Looks on while steps are timed.
  struct Watch {
    Watch(execution::Backend& backend, const execution::Executor& executor)
        : timer(backend, executor.plan()), counted(executor) {}
    execution::OpTimer timer;
    CountedBytes counted;
  };
  std::map<execution::Executor*, std::unique_ptr<Watch>> watches_;
  std::map<std::string, OpTotal> totals_;  ///< by queue and kind
  /// What communication of each queue took, one entry for each timed step.
  struct Communication {
    std::vector<double> busy_s, exposed_s;
  };
  std::map<std::string, Communication> communication_;
  std::vector<double> times_;  ///< first begin to last end, of each timed step
  std::vector<execution::OpTimer::Interval> last_;
  std::vector<std::size_t> counted_bytes_;  ///< of the last timed step
};

/// Whether ops of a kind do work for each (query, key) pair within documents: a program's cost is
/// that of the most pairs that the data can have.
bool is_over_pairs(std::string_view kind);

}  // namespace stowage::run
