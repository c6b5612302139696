#pragma once

#include <cuda_runtime.h>

#include "kernels/hopper/griddepcontrol.cuh"
#include "kernels/hopper/shared_address.cuh"

/// How the kernels of one attention call follow one another.
namespace stowage::kernels::attention {

/// First statement of a kernel after what depends on no other: lets the next kernel of the call
/// line up for free multiprocessors, and waits for the results of those before.
__device__ __forceinline__ void join_call() {
  hopper::griddepcontrol_launch_dependents();
  hopper::griddepcontrol_wait();
}

/// Launches a kernel that calls join_call() before it reads or writes memory, behind another one of
/// the same call: it begins while that one's last blocks run.
template <auto kKernel, class... Arguments>
cudaError_t launch_behind(unsigned blocks, unsigned threads, int shared_bytes, cudaStream_t stream,
                          const Arguments&... arguments) {
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kKernel, arguments...);
}

/// A block's dynamic shared memory as an S that begins at a multiple of 1024 bytes, which swizzled
/// tiles need; the launch adds as much.
template <class S>
__device__ __forceinline__ S& aligned_shared(unsigned char* raw) {
  return *reinterpret_cast<S*>(raw + ((1024U - (hopper::shared_address(raw) & 1023U)) & 1023U));
}

/// launch_behind for persistent blocks with room for an S each.
template <auto kKernel, class S, class... Arguments>
cudaError_t launch_persistent(int blocks, int threads, cudaStream_t stream,
                              const Arguments&... arguments) {
  constexpr int kBytes = sizeof(S) + 1024;
  static const cudaError_t raised =
      cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (raised != cudaSuccess) return raised;
  return launch_behind<kKernel>(static_cast<unsigned>(blocks), static_cast<unsigned>(threads),
                                kBytes, stream, arguments...);
}

}  // namespace stowage::kernels::attention
