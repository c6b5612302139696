#pragma once

#include <string>
#include <vector>

#include "execution/executor.hpp"
#include "execution/op_timer.hpp"
#include "forecast/pipeline/planned_pipeline.hpp"
#include "forecast/plan/trainer_plan.hpp"
#include "parallel/job/mpi.hpp"
#include "results/value.hpp"

namespace stowage::drivers {

/// What the stages of a pipeline took in steps that were timed op by op.
class StageTimes {
 public:
  /// Adds a step of this rank, which executed one of the training programs; nothing is done without
  /// a pipeline.
  void add(const forecast::TrainerPlan& plan, const execution::Executor& executed,
           const std::vector<execution::OpTimer::Interval>& intervals);

  /// What a point says of its pipeline, on rank 0; nothing without one. Times are means over the
  /// steps, of the first rank that has a stage: `stage_S_forward_s`, `stage_S_backward_s` and
  /// `stage_S_weights_s` of a pass without what it waits for messages, `rank_R_rest_s` of what a
  /// pipeline rank computes beside passes; `schedule_time_s` is what a step takes if ranks wait for
  /// passes of others alone, and messages take no time. Collective.
  results::Fields fields(const forecast::TrainerPlan& plan,
                         const parallel::Communicator& ranks) const;

 private:
  std::vector<layers::PassTimes> sums_;  ///< of this rank's stages
  double rest_s_ = 0;
  int steps_ = 0;
};

}  // namespace stowage::drivers
