#pragma once

#include "kernels/hopper/convert.cuh"

namespace stowage::kernels::device {

/// 1 / (1 + exp(-x)), about 3 ulp, with the exact limits 0 and 1.
__device__ __forceinline__ float sigmoid(float x) {
  constexpr float kLog2E = 1.4426950408889634F;
  return __fdividef(1.0F, 1.0F + hopper::ex2(-x * kLog2E));
}

/// d (x sigmoid(x)) / dx, given sigmoid(x).
__device__ __forceinline__ float silu_derivative(float x, float sigmoid_x) {
  return sigmoid_x * (1.0F + x * (1.0F - sigmoid_x));
}

}  // namespace stowage::kernels::device
