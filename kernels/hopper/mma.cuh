#pragma once

#include <cstdint>

namespace stowage::kernels::hopper {

/// mma.sync m16n8k16: d (16 x 8 fp32) += a (16 x 16 bf16) b (16 x 8 bf16), one warp. d and a lie as
/// those of a wgmma (wgmma.cuh). With g = lane / 4, t = lane % 4: b0 = (rows 2 t and + 1, column
/// g), b1 = the same of rows 8 + 2 t.
__device__ __forceinline__ void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4],
                                         std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace stowage::kernels::hopper
