#pragma once

#include <cuda_runtime.h>

#include "kernels/hopper/dependent_launch.cuh"

namespace stowage::kernels::gated_delta {

/// Launches x times y blocks with dynamic shared memory. No blocks are no launch.
template <class... Parameters, class... Args>
cudaError_t launch_blocks(void (*kernel)(Parameters...), int x, int y, int threads, int bytes,
                          void* stream, const Args&... args) {
  if (x == 0 || y == 0) return cudaSuccess;
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (status != cudaSuccess) return status;
  kernel<<<dim3(static_cast<unsigned>(x), static_cast<unsigned>(y)), static_cast<unsigned>(threads),
           static_cast<std::size_t>(bytes), static_cast<cudaStream_t>(stream)>>>(args...);
  return cudaGetLastError();
}

/// The same behind a kernel that lets it begin before it has ended (hopper/dependent_launch.cuh).
template <class... Parameters, class... Args>
cudaError_t launch_dependent_blocks(void (*kernel)(Parameters...), int x, int y, int threads,
                                    int bytes, void* stream, const Args&... args) {
  if (x == 0 || y == 0) return cudaSuccess;
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (status != cudaSuccess) return status;
  return hopper::launch_dependent(kernel, dim3(static_cast<unsigned>(x), static_cast<unsigned>(y)),
                                  static_cast<unsigned>(threads), static_cast<std::size_t>(bytes),
                                  static_cast<cudaStream_t>(stream), args...);
}

}  // namespace stowage::kernels::gated_delta
