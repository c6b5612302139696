#pragma once

#include "layers/state/optimizer.hpp"

namespace stowage::ctest {

/// Gradient descent with momentum, without clipping or decay: one state. Host only.
///
///   m = kMomentum m + gradient,  master = master - lr m
extern const layers::Optimizer kDescent;
inline constexpr double kMomentum = 0.9;

}  // namespace stowage::ctest
