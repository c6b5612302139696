#pragma once

namespace stowage::kernels::hopper {

/// Waits until the kernels before this one are complete and their writes visible; returns at once
/// unless the launch was a programmatic one, which lets a kernel start before.
__device__ __forceinline__ void griddepcontrol_wait() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

/// Lets the next kernel start once all blocks of this one have called it or ended, if its launch is
/// a programmatic one: its blocks then take multiprocessors as they become free.
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace stowage::kernels::hopper
