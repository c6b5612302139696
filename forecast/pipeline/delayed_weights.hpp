#pragma once

#include <vector>

#include "layers/schedule/pipeline.hpp"
#include "offload/policy.hpp"

namespace stowage::forecast {

/// Device bytes that one stage holds of a microbatch from one of its passes to another.
struct HeldBytes {
  double in_flight = 0;  ///< from forward to backward
  double turning = 0;    ///< most at once in a backward that leaves gradients of weights for later
  double waiting = 0;    ///< from that backward to the pass that makes them
};

/// Of each stage.
/// @param microbatch of the whole model, as one_microbatch() records it
/// @param policy what it lists to be computed again or moved is taken to be held from backward on,
/// so of a plan that keeps some of it this is too little
std::vector<HeldBytes> held_bytes(const execution::Program& microbatch,
                                  const std::vector<layers::Stage>& stages, int layers,
                                  const offload::Policy& policy);

/// The most that a rank of one stage holds at once in these passes.
double most_held(const layers::RankPasses& passes, const HeldBytes& bytes);

/// How far ranks of a zero-bubble pipeline put gradients of weights off, and what that holds.
struct DelayedWeights {
  double bound_bytes = 0;
  bool as_1f1b = true;             ///< the bound is what 1F1B holds on the rank that holds most
  std::vector<int> microbatches;   ///< by rank, for train_in_pipeline
  std::vector<double> held_bytes;  ///< by rank, at most; above the bound only where 1F1B is too
};

/// As many microbatches on each rank as the time asks for that 1F1B waits at the end, but no more
/// than hold the bound.
/// @param bytes by stage, one for each rank
/// @param bound_bytes 0: the most that any rank holds in 1F1B, as ZB-H1 of arXiv 2401.10241 has it
DelayedWeights delay_weights(const std::vector<HeldBytes>& bytes, int microbatches,
                             double bound_bytes);

}  // namespace stowage::forecast
