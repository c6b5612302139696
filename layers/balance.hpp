#pragma once

#include <string>
#include <vector>

#include "layers/timeline.hpp"
#include "layers/turns.hpp"
#include "offload/rates.hpp"

namespace stowage::layers {

/// Predicted times of the parts of a model, with what ranks exchange inside of them: it is waited
/// for where the next op needs it, as most does.
struct PartTimes {
  PassTimes embedding;
  std::vector<PassTimes> layers;
  PassTimes head;  ///< with the loss
};

/// The passes of one microbatch of a model, apart: forward, backward, weights.
Program one_microbatch(const Model& model, StepShape shape,
                       const execution::PersistentLayout& layout);

/// @param ranks those that share out the products of a layer; one stage
PartTimes predict_parts(const ModelConfig& config, Precision precision, const StepShape& shape,
                        const parallel::Ranks& ranks, const offload::Rates& rates);

/// A pattern without cuts, with cuts '|' that leave the slowest stage as little time as any; of
/// those, the most even ones. Where ranks have several stages, layers then move over cuts as long
/// as that helps the slowest rank.
/// @throws Error (exit 2) if there are too few layers
std::string balanced_cuts(const std::string& pattern, PipelineShape shape, const PartTimes& times);

/// Times of each stage.
std::vector<PassTimes> stage_times(const std::vector<Stage>& stages, const PartTimes& times);

}  // namespace stowage::layers
