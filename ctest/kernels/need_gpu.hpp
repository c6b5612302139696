#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <string>

#include "kernels/machine.hpp"

/// What a test needs of the machine; without it the test is skipped, and says why.
namespace stowage::test {

inline bool has_gpu() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
}

#define STOWAGE_NEED_GPU() \
  if (!stowage::test::has_gpu()) GTEST_SKIP() << "no GPU"

inline std::string lacks_wgmma() {
  return has_gpu() ? kernels::machine().no_wgmma() : std::string("no GPU");
}

/// For tests of kernels that only one generation of GPUs runs, where nothing else would serve or
/// what serves is not meant.
#define STOWAGE_NEED_WGMMA() \
  if (const std::string why = stowage::test::lacks_wgmma(); !why.empty()) GTEST_SKIP() << why

}  // namespace stowage::test
