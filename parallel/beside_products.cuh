#pragma once

#include <cuda_runtime.h>

/// How kernels of communication are made to find room on SMs that products hold to their end:
/// persistent blocks with 384 threads of 168 registers and all shared memory but 2 KiB. Room is
/// left for one warp of 32 registers: `__maxnreg__(kRegistersBeside)`.
namespace stowage::parallel::detail {

inline constexpr int kWarp = 32;
inline constexpr int kRegistersBeside = 32;

/// An SM divides its memory between shared memory and cache anew only when it is empty. A kernel
/// without shared memory that says nothing may wait for that.
template <auto kKernel>
cudaError_t keep_division_of_products() {
  static const cudaError_t kept = cudaFuncSetAttribute(
      kKernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  return kept;
}

}  // namespace stowage::parallel::detail
