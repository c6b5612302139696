#pragma once

#include <optional>

#include "forecast/pipeline/balance.hpp"
#include "forecast/pipeline/delayed_weights.hpp"

namespace stowage::forecast {

/// Inputs of the pipeline forecast.
struct PipelineInputs {
  layers::ModelConfig model;
  layers::Precision precision;
  layers::StepShape step;
  parallel::Ranks ranks;
  layers::PipelineSchedule schedule = layers::PipelineSchedule::one_forward_one_backward;
  offload::Rates rates;
  offload::Policy policy = {};
  bool zero = false;             ///< see Sharing
  double zero_bubble_bytes = 0;  ///< see Sharing
  layers::StateOptions state = {};
};

/// How a model is cut and its microbatches passed on, and what that is expected to take. Every rank
/// finds the same.
struct PipelinePlan {
  std::string pattern;  ///< with cuts
  /// Why there: "by hand", "for even times", or that within the budget.
  std::string cut_for;
  double over_bytes = 0;   ///< what must stay above the budget, over all ranks
  int virtual_stages = 1;  ///< of each rank
  layers::PipelineSchedule schedule = layers::PipelineSchedule::one_forward_one_backward;
  std::optional<DelayedWeights> delayed;  ///< of zero bubble
  std::vector<layers::PassTimes> times;   ///< by stage
  double exchange_s = 0;                  ///< of one message
  /// Without sums of gradients, the optimizer, and what a policy moves or computes again
  /// (planned_pipeline.hpp).
  Timeline timeline;
};

/// Cuts a model that is not cut by hand where the predicted times are most even within the device
/// budget of a policy (balanced_cuts). Of PipelineSchedule::automatic it makes the schedule that
/// leaves the fewest bytes above that budget, and of those the quickest, that the cuts, the layers
/// and the microbatches allow; of equals the first of 1F1B, which keeps least, zero bubble and, if
/// ranks are to have several stages, interleaved.
PipelinePlan choose_pipeline(const PipelineInputs& options);

}  // namespace stowage::forecast
