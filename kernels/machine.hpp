#pragma once

#include <cstdint>
#include <string>

namespace stowage::kernels {

/// What kernels choose by: the GPU that is current when it is first asked for, read once.
struct Machine {
  int multiprocessors = 0;             ///< that persistent kernels and products take
  int left = 0;                        ///< to others: see leave_multiprocessors
  std::int64_t shared_bytes = 232448;  ///< of shared memory that a block may ask for
  int capability = 90;                 ///< compute capability, ten times: 9.0 is 90

  /// Whether the files for sm_90a run here.
  bool wgmma() const { return capability == 90; }
  /// Why they do not, for whom nothing else serves; empty if they do.
  std::string no_wgmma() const;
};

/// Without a GPU, or in a build without CUDA, no multiprocessors, and wgmma(): a plan that is made
/// there is one for Hopper.
const Machine& machine();

/// Persistent kernels and products leave so many multiprocessors to communication from here on, one
/// at least to themselves. Before the first of them is launched: those prepared stay as they are.
void leave_multiprocessors(int count);

}  // namespace stowage::kernels
