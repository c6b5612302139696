#include <fmt/core.h>

#include "execution/cuda_check.hpp"
#include "execution/error.hpp"

namespace stowage::execution {
namespace {

bool machine_lacks_it(cudaError_t code) {
  switch (static_cast<int>(code)) {  // CUDA has some hundred others
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorDevicesUnavailable:
    case cudaErrorMemoryAllocation:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
      return true;
    default:
      return false;
  }
}

}  // namespace

void throw_cuda_failed(std::string_view call, cudaError_t code, std::source_location at) {
  (void)cudaGetLastError();
  if (machine_lacks_it(code))
    throw_environment("CUDA call {} failed with {} ({}): {} at {}:{}", call, cudaGetErrorName(code),
                      static_cast<int>(code), cudaGetErrorString(code), at.file_name(), at.line());
  throw_call_failed("CUDA", call, static_cast<long long>(code),
                    fmt::format("{}, {}", cudaGetErrorName(code), cudaGetErrorString(code)), at);
}

}  // namespace stowage::execution
