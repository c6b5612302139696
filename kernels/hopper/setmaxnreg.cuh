#pragma once

namespace stowage::kernels::hopper {

/// Gives the warpgroup `kRegisters` registers a thread, more than it has; waits until they are
/// free. All warps of the warpgroup call it. The kernel needs `__launch_bounds__(threads, 1)`: its
/// warpgroups share 65536 / threads a thread, rounded down to 8 (168 of 384), and one that asks for
/// more than the others left waits for ever.
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256);
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/// Releases registers of the warpgroup down to `kRegisters` a thread.
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256);
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace stowage::kernels::hopper
