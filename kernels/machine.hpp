#pragma once

#include <cstdint>

namespace stowage::kernels {

/// What kernels choose by: the GPU that is current when it is first asked for, read once.
struct Machine {
  int multiprocessors = 0;
  std::int64_t shared_bytes = 232448;  ///< of shared memory that a block may ask for
  bool wgmma = true;                   ///< compute capability 9.x: the files for sm_90a run here
};

/// Without a GPU no multiprocessors and `wgmma`: a plan that is made there is one for Hopper.
const Machine& machine();

}  // namespace stowage::kernels
