#pragma once

namespace stowage::kernels::hopper {

/// Reads a word in global memory; what its writer did before `store_release` is then seen.
__device__ __forceinline__ int load_acquire(const int* address) {
  int value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}

/// Writes a word in global memory behind all that this thread has done and seen.
__device__ __forceinline__ void store_release(int* address, int value) {
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

}  // namespace stowage::kernels::hopper
