#pragma once

#include <string>

#include "forecast/pipeline/delayed_weights.hpp"

namespace stowage::forecast {

/// Of how many microbatches gradients of weights wait in a zero-bubble pipeline, what that holds,
/// and its bound, in one sentence: of all ranks, or of one.
std::string delayed_text(const DelayedWeights& delayed);
std::string delayed_text(const DelayedWeights& delayed, int rank);

}  // namespace stowage::forecast
