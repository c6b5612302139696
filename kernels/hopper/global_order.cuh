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

/// Adds to a word in global memory behind all that this thread has done and seen.
__device__ __forceinline__ void add_release(int* address, int value) {
  asm volatile("red.release.gpu.global.add.s32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

/// Adds to a word in global memory behind all that this thread has done and seen, and gives what it
/// was; what those did that added to it before is then seen.
__device__ __forceinline__ int add_acquire_release(int* address, int value) {
  int before;
  asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(address), "r"(value)
               : "memory");
  return before;
}

}  // namespace stowage::kernels::hopper
