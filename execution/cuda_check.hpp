#pragma once

#include <cuda_runtime_api.h>

#include <source_location>
#include <string_view>

/// Calls the CUDA runtime and throws an Error with the call, its code and text, and the place if it
/// fails; the rank is added where the error is printed. For .cpp files: device code returns codes.
#define STOWAGE_CUDA(call)                                                              \
  do {                                                                                  \
    if (const cudaError_t stowage_cuda_code = (call); stowage_cuda_code != cudaSuccess) \
        [[unlikely]]                                                                    \
      ::stowage::execution::throw_cuda_failed(#call, stowage_cuda_code,                 \
                                              std::source_location::current());         \
  } while (false)

namespace stowage::execution {

/// Throws for a failed call: exit 3 if the machine lacks what the call needs (a GPU, a driver, code
/// for its architecture, memory), else exit 4. Clears the error that the runtime remembers.
[[noreturn]] void throw_cuda_failed(std::string_view call, cudaError_t code,
                                    std::source_location at);

}  // namespace stowage::execution
