#include "kernels/machine.hpp"

#include <cuda_runtime_api.h>

namespace stowage::kernels {

namespace {

Machine read_machine() {
  int device = 0, multiprocessors = 0, major = 0, shared_bytes = 0;
  const auto read = [&](int& value, cudaDeviceAttr attribute) {
    return cudaDeviceGetAttribute(&value, attribute, device) == cudaSuccess;
  };
  if (cudaGetDevice(&device) != cudaSuccess ||
      !read(multiprocessors, cudaDevAttrMultiProcessorCount) ||
      !read(major, cudaDevAttrComputeCapabilityMajor) ||
      !read(shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin))
    return {};
  return {multiprocessors, shared_bytes, major == 9};
}

}  // namespace

const Machine& machine() {
  static const Machine found = read_machine();
  return found;
}

}  // namespace stowage::kernels
