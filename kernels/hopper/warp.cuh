#pragma once

#include <cstdint>

namespace stowage::kernels::hopper {

/// True in one lane of a converged warp, always the same one; cheaper than a lane compare because
/// the compiler knows that a single thread goes on.
__device__ __forceinline__ bool elect_one() {
  std::uint32_t elected;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xFFFFFFFF;\nselp.u32 %0, 1, 0, p;\n}\n"
               : "=r"(elected));
  return elected != 0;
}

/// The warp's index in the block, as a value that the compiler knows to be uniform in the warp.
__device__ __forceinline__ int uniform_warp_index() {
  return __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x / 32U), 0);
}

/// Reductions over groups of `kLanes` neighbouring lanes in a fixed butterfly order; all lanes get
/// the result. kLanes = 4 reduces a row of a wgmma accumulator.
template <int kLanes>
__device__ __forceinline__ float lanes_sum(float value) {
#pragma unroll
  for (int mask = 1; mask < kLanes; mask *= 2) value += __shfl_xor_sync(0xFFFFFFFFU, value, mask);
  return value;
}

template <int kLanes>
__device__ __forceinline__ float lanes_max(float value) {
#pragma unroll
  for (int mask = 1; mask < kLanes; mask *= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFU, value, mask));
  }
  return value;
}

}  // namespace stowage::kernels::hopper
