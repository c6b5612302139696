#pragma once

#include <string>

#include "training/delayed_weights.hpp"

namespace stowage::drivers {

/// Of how many microbatches gradients of weights wait in a zero-bubble pipeline, what that holds,
/// and its bound, in one sentence: of all ranks, or of one.
std::string delayed_text(const training::DelayedWeights& delayed);
std::string delayed_text(const training::DelayedWeights& delayed, int rank);

}  // namespace stowage::drivers
