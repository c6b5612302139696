#pragma once

#include <string>

#include "layers/schedule/delayed_weights.hpp"

namespace stowage::drivers {

/// Of how many microbatches gradients of weights wait in a zero-bubble pipeline, what that holds,
/// and its bound, in one sentence: of all ranks, or of one.
std::string delayed_text(const layers::DelayedWeights& delayed);
std::string delayed_text(const layers::DelayedWeights& delayed, int rank);

}  // namespace stowage::drivers
