#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace stowage::kernels::hopper {

/// Launches a kernel that may begin before the one ahead of it in the stream has ended: its start
/// then costs no time. Every thread of it calls `griddepcontrol_wait` (griddepcontrol.cuh) before
/// it touches memory that the kernel ahead, or one before that, uses. If the kernel ahead lets it
/// begin only after a wait of its own, that holds for what the kernel ahead uses alone.
template <class... Parameters, class... Arguments>
cudaError_t launch_dependent(void (*kernel)(Parameters...), dim3 grid, unsigned threads,
                             std::size_t shared_bytes, cudaStream_t stream,
                             const Arguments&... arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
}

}  // namespace stowage::kernels::hopper
