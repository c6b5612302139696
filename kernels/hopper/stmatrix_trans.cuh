#pragma once

#include <cstdint>

namespace stowage::kernels::hopper {

/// stmatrix_x4 with each matrix transposed: lane l gives the address of column l % 8 of matrix
/// l / 8.
__device__ __forceinline__ void stmatrix_x4_trans(std::uint32_t address, std::uint32_t r0,
                                                  std::uint32_t r1, std::uint32_t r2,
                                                  std::uint32_t r3) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
      "r"(r0), "r"(r1), "r"(r2), "r"(r3)
      : "memory");
}

}  // namespace stowage::kernels::hopper
