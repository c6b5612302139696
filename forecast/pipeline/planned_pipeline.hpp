#pragma once

#include <vector>

#include "forecast/pipeline/pipeline_plan.hpp"
#include "offload/prediction.hpp"

namespace stowage::forecast {

/// A pass of a microbatch as a rank does it by its plan.
struct PlannedPass {
  double begin_s = -1;  ///< with what is computed again for it
  double end_s = -1;
  double waits_s = 0;  ///< of it, for messages of other stages
  double time_s() const { return end_s - begin_s - waits_s; }
};

/// Rates of a rank that waits for no message of others: those take no time.
offload::Rates alone(offload::Rates rates);

/// In the order of the program, with what is computed again and with waits for copies.
/// @param steps when each step of the plan is executed, as predicted or as timed; what is not keeps
/// negative times
std::vector<PlannedPass> planned_passes(const execution::Program& program,
                                        const execution::Plan& plan,
                                        const std::vector<Timeline::Span>& steps);
std::vector<Timeline::Span> step_spans(const offload::Prediction& prediction);

/// Times of each stage of a rank: means over its passes. A backward that makes gradients of weights
/// itself takes the part of its time for them that was predicted without the plan.
std::vector<layers::PassTimes> planned_times(const PipelinePlan& pipeline, int rank,
                                             const std::vector<PlannedPass>& passes);

/// Times of all stages where those of one rank's are known: the others are taken to be longer than
/// predicted by as much.
std::vector<layers::PassTimes> scale_to_measured(const PipelinePlan& pipeline, int rank,
                                                 const std::vector<layers::PassTimes>& own);

/// What all ranks do when if passes take these times, by stage; their order stays.
Timeline with_times(const PipelinePlan& pipeline, const std::vector<layers::PassTimes>& times);

}  // namespace stowage::forecast
