#pragma once

#include "kernels/activation/activation.hpp"
#include "kernels/silu.cuh"

/// The arithmetic of one element of an activation, in fp32: what every kernel that applies one
/// shares, so that a product with an activation behind it gives the bits of both apart.
namespace stowage::kernels::activation {

/// act(x); `up` is of swiglu only.
template <Activation kKind>
__device__ __forceinline__ float activate(float x, [[maybe_unused]] float up) {
  if constexpr (kKind == Activation::squared_relu) {
    const float positive = fmaxf(x, 0.0F);
    return positive * positive;
  } else {
    return x * device::sigmoid(x) * up;
  }
}

/// dx and dup for the gradient dy; returns dy * act(x). `weight` is the row's. What act(x) consists
/// of is written as `activate` has it, so that a caller of both computes it once.
template <Activation kKind>
__device__ __forceinline__ float differentiate(float dy, float x, [[maybe_unused]] float up,
                                               float weight, float& dx,
                                               [[maybe_unused]] float& dup) {
  if constexpr (kKind == Activation::squared_relu) {
    const float positive = fmaxf(x, 0.0F);
    dx = 2 * weight * dy * positive;
    return dy * (positive * positive);
  } else {
    const float gate = device::sigmoid(x), silu = x * gate, weighted = weight * dy;
    dx = weighted * up * fmaf(silu, 1.0F - gate, gate);
    dup = weighted * silu;
    return dy * (silu * up);
  }
}

}  // namespace stowage::kernels::activation
