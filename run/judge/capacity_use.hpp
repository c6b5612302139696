#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "forecast/plan/trainer_plan.hpp"
#include "results/result_set.hpp"
#include "run/judge/judge.hpp"
#include "run/step/loop.hpp"

namespace stowage::run {

/// Which programs the steps of a run took: each has room for so many documents in a microbatch, and
/// those with more than any graph has room for are issued op by op.
class CapacityUse {
 public:
  /// Keeps the series /series/packing in `set`; both outlive this.
  CapacityUse(results::ResultSet& set, const forecast::TrainerPlan& plan);

  void add(const StepReport& report);
  /// For the progress line, "documents 64: 12, 512: 3, op by op: 1" steps; empty if one program
  /// serves all.
  std::string text() const;
  /// Whether the step's program was issued op by op.
  bool op_by_op(const StepReport& report) const { return plan_.beyond_graphs(report.capacity); }
  /// Steps, step time and tokens per second of each program that was taken: of the steps that are
  /// timed, whose tokens are theirs.
  void add_metrics(const History& history);

 private:
  results::ResultSet& set_;
  const forecast::TrainerPlan& plan_;
  results::Series& series_;
  std::map<std::int64_t, int> steps_;  ///< by capacity
};

}  // namespace stowage::run
