#include "kernels/machine.hpp"

#include <cuda_runtime_api.h>

namespace stowage::kernels {

namespace {

Machine read_machine() {
  int device = 0, multiprocessors = 0, major = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device) !=
          cudaSuccess ||
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess)
    return {};
  return {multiprocessors, major == 9};
}

}  // namespace

const Machine& machine() {
  static const Machine found = read_machine();
  return found;
}

}  // namespace stowage::kernels
