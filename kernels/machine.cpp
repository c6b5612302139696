#include "kernels/machine.hpp"

#if STOWAGE_HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

#include <algorithm>

namespace stowage::kernels {

namespace {

Machine read_machine() {
#if STOWAGE_HAVE_CUDA
  int device = 0, multiprocessors = 0, major = 0, minor = 0, shared_bytes = 0;
  const auto read = [&](int& value, cudaDeviceAttr attribute) {
    return cudaDeviceGetAttribute(&value, attribute, device) == cudaSuccess;
  };
  if (cudaGetDevice(&device) != cudaSuccess ||
      !read(multiprocessors, cudaDevAttrMultiProcessorCount) ||
      !read(major, cudaDevAttrComputeCapabilityMajor) ||
      !read(minor, cudaDevAttrComputeCapabilityMinor) ||
      !read(shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin))
    return {};
  return {multiprocessors, 0, shared_bytes, 10 * major + minor};
#else
  return {};
#endif
}

}  // namespace

std::string Machine::no_wgmma() const {
  if (wgmma()) return {};
  return "needs compute capability 9.0: this GPU has " + std::to_string(capability / 10) + "." +
         std::to_string(capability % 10);
}

namespace {

Machine& current_machine() {
  static Machine found = read_machine();
  return found;
}

}  // namespace

const Machine& machine() { return current_machine(); }

void leave_multiprocessors(int count) {
  Machine& here = current_machine();
  const int all = here.multiprocessors + here.left;
  here.left = std::clamp(count, 0, std::max(all - 1, 0));
  here.multiprocessors = all - here.left;
}

}  // namespace stowage::kernels
