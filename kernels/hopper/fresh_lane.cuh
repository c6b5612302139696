#pragma once

namespace stowage::kernels::hopper {

/// The lane's index in its warp, read anew: the compiler keeps nothing that follows from it.
__device__ __forceinline__ int fresh_lane() {
  int lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

}  // namespace stowage::kernels::hopper
