#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "kernels/machine.hpp"

/// What a test needs of the machine; without it the test is skipped, and says why.
namespace stowage::test {

inline bool has_gpu() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
}

#define STOWAGE_NEED_GPU() \
  if (!stowage::test::has_gpu()) GTEST_SKIP() << "no GPU"

/// For tests of kernels that only one generation of GPUs runs, where nothing else would serve or
/// what serves is not meant.
#define STOWAGE_NEED_WGMMA() \
  STOWAGE_NEED_GPU();        \
  if (!stowage::kernels::machine().wgmma()) GTEST_SKIP() << stowage::kernels::machine().no_wgmma()

}  // namespace stowage::test
