#pragma once

#include "kernels/hopper/shared_address.cuh"

namespace stowage::kernels::hopper {

/// Copies 8 bytes from global into shared memory, past the registers; both are 8-byte aligned. With
/// `there` false nothing is read and the bytes become zero.
__device__ __forceinline__ void async_copy_8(void* shared, const void* global, bool there = true) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared_address(shared)),
               "l"(global), "r"(there ? 8 : 0)
               : "memory");
}

/// Closes the group of this thread's copies.
__device__ __forceinline__ void async_copy_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/// Waits until at most `kPending` groups of this thread are unfinished; the thread then sees the
/// bytes of the others.
template <int kPending>
__device__ __forceinline__ void async_copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace stowage::kernels::hopper
