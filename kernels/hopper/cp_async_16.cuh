#pragma once

#include <cstdint>

#include "kernels/hopper/cp_async.cuh"

namespace stowage::kernels::hopper {

/// async_copy_8 with 16 bytes, both 16-byte aligned, past L1; `shared` is an address in the shared
/// window.
__device__ __forceinline__ void async_copy_16(std::uint32_t shared, const void* global,
                                              bool there = true) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(there ? 16 : 0)
               : "memory");
}

}  // namespace stowage::kernels::hopper
