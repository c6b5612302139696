#pragma once

#include <string>
#include <vector>

#include "forecast/pipeline/part_bytes.hpp"
#include "forecast/pipeline/timeline.hpp"
#include "layers/schedule/passes.hpp"
#include "offload/rates.hpp"

namespace stowage::forecast {

/// Predicted times of the parts of a model.
struct PartTimes {
  layers::PassTimes embedding;
  std::vector<layers::PassTimes> layers;
  layers::PassTimes head;  ///< with the loss

  /// @param part as part_of() numbers them
  layers::PassTimes& of(int part) {
    if (part < 0) return embedding;
    return part < std::ssize(layers) ? layers[static_cast<std::size_t>(part)] : head;
  }
  const layers::PassTimes& of(int part) const { return const_cast<PartTimes*>(this)->of(part); }
};

/// The parts of a model where ranks share them.
struct PredictedParts {
  PartTimes times;     ///< with what ranks exchange inside of them, as far as compute waits for it
  PartTimes compute;   ///< without
  PartTimes exchange;  ///< that itself, beside compute; with backward what weights exchange
};

/// The passes of one microbatch of a model: forward, backward, weights.
/// @param weights_apart gradients of weights are the pass behind backward, not within it
execution::Program one_microbatch(const layers::Model& model, layers::StepShape shape,
                                  const execution::PersistentLayout& layout,
                                  bool weights_apart = true);

/// By op of such a program: the pass that it is of, 0 forward, 1 backward, 2 weights, or -1.
std::vector<int> passes_of(const execution::Program& microbatch);
/// The part of a model that such an op is of: -1 the embedding, a layer, or all layers: the head.
int part_of(const execution::Program& microbatch, const execution::Op& op, int layers);

/// Follows one microbatch, in which everything is kept, on the queues of a rank.
/// @param ranks those that share out the products of a layer; one stage
PredictedParts predict_parts(const layers::ModelConfig& config, layers::Precision precision,
                             const layers::StepShape& shape, const parallel::Ranks& ranks,
                             const offload::Rates& rates);

/// A pattern without cuts, with cuts '|' that leave the slowest stage as little time as any; of
/// those, the most even ones. Where ranks have several stages, layers then move over cuts as long
/// as that helps the slowest rank.
///
/// With a budget, cuts come first that leave the fewest bytes above it of what must stay on the
/// device: none, if any cut does. Then a rank takes at least as long as the copies of what has to
/// leave it, so the cut by time stands where copies hide behind its passes. Bytes are an estimate:
/// state, what is saved of the microbatches that the schedule has in flight, and what one pass
/// works with, without gaps between tensors.
/// @throws Error (exit 2) if there are too few layers
std::string balanced_cuts(const std::string& pattern, layers::PipelineShape shape,
                          const PartTimes& times, const DeviceRoom& room = {});

/// Times of each stage.
std::vector<layers::PassTimes> stage_times(const std::vector<layers::Stage>& stages,
                                           const PartTimes& times);

}  // namespace stowage::forecast
