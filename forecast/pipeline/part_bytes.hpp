#pragma once

#include <set>
#include <vector>

#include "layers/model/model.hpp"
#include "layers/schedule/pipeline.hpp"
#include "layers/state/state.hpp"
#include "offload/policy.hpp"

namespace stowage::forecast {

/// Device bytes of a part of a model on one rank, as far as the cut of a pipeline depends on them.
struct PartBytes {
  double state = 0;    ///< parameters, gradients, masters and moments
  double fixed = 0;    ///< saved of each microbatch in flight, and too small to leave the device
  double movable = 0;  ///< saved of each microbatch in flight, and may leave
  double working = 0;  ///< most at once beside these: what one pass needs while it lasts

  /// Of two parts of one stage, of which one pass goes on at a time.
  PartBytes& operator+=(const PartBytes& other);
};

/// By part of a model.
struct PartMemory {
  PartBytes embedding;
  std::vector<PartBytes> layers;
  PartBytes head;  ///< with the loss; a tied weight counts here too
};

/// Of all layers of a stage, with what it has of the ends of the model.
PartBytes stage_bytes(const layers::Stage& stage, const PartMemory& memory);

/// @param microbatch of `model`, as one_microbatch() records it. What its backward leaves to the
/// weights' pass is not counted; in return, a microbatch counts as in flight until that pass.
/// @param policy tensors that it computes again are not saved
/// @param state what its optimizer keeps, and what of it has its home on the host
/// @param zero masters and the optimizer's states are cut over the ranks that have the same
/// parameters
/// @param holders the process grid that tells how many those are
PartMemory count_bytes(const layers::Model& model, const execution::Program& microbatch,
                       const offload::Policy& policy, const layers::StateOptions& state, bool zero,
                       const parallel::Ranks& holders);

/// By rank: what it has in flight at some time of a step, microbatches by its stages; each
/// combination once.
using InFlight = std::vector<std::set<std::vector<int>>>;
InFlight in_flight(layers::PipelineShape shape, const std::vector<layers::RankPasses>& passes);

/// The memory of a device that a cut has to keep to.
struct DeviceRoom {
  double budget_bytes = 0;     ///< 0: there is no budget
  double copy_s_per_byte = 0;  ///< to the host and back, while both directions are busy
  PartMemory parts;
  InFlight in_flight;
};

/// What a rank cannot have in its memory, and what it takes to have the rest.
struct Overflow {
  double over_bytes = 0;  ///< of what must stay, above the budget
  double copies_s = 0;    ///< of a microbatch, so that what may leave meets the budget
};

/// @param stages bytes of each of the rank's stages
Overflow overflow(const DeviceRoom& room, int rank, const std::vector<PartBytes>& stages);

}  // namespace stowage::forecast
