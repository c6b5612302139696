#pragma once

#include <cstdint>

namespace stowage::kernels::hopper {

/// D += A B of one warp, (16 x 16) (16 x 8), bf16 with fp32 sums. d and a are laid out as a warp's
/// part of wgmma's accumulator and A operand (wgmma.cuh), 8 columns of it; b0 and b1 hold of column
/// l / 4 the rows 2 (l % 4), + 1, and those 8 further.
__device__ __forceinline__ void mma_16x8x16(float& d0, float& d1, float& d2, float& d3,
                                            const std::uint32_t (&a)[4], std::uint32_t b0,
                                            std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
      " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace stowage::kernels::hopper
