#pragma once

#include <cstdint>

#include "kernels/hopper/convert.cuh"
#include "kernels/hopper/matrix_move.cuh"

/// Moves between registers of wgmma and rows in memory, shared by the attention kernels.
namespace stowage::kernels::attention {

/// Writes 16 rows of a warp, kColumns wide, as swizzled 128-byte rows in panels of 64 columns,
/// `panel_bytes` apart; rows r and r + 8 of a thread are scaled by factor[0] and factor[1].
template <int kColumns>
__device__ __forceinline__ void stage_rows(unsigned char* staging, int panel_bytes,
                                           const float (&fragment)[kColumns / 2],
                                           const float (&factor)[2]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::uint32_t base = hopper::shared_address(staging);
#pragma unroll
  for (int j = 0; j < kColumns / 16; ++j) {
    // Matrices of one stmatrix: rows 0-7 and 8-15 of columns 16 j, then of columns 16 j + 8.
    const int row = lane % 16;
    const int chunk = 2 * (j % 4) + lane / 16;
    const float* f = fragment + 8 * j;
    hopper::stmatrix_x4(base + j / 4 * panel_bytes + row * 128 + ((chunk ^ (row % 8)) * 16),
                        hopper::pack_bf16(f[0] * factor[0], f[1] * factor[0]),
                        hopper::pack_bf16(f[2] * factor[1], f[3] * factor[1]),
                        hopper::pack_bf16(f[4] * factor[0], f[5] * factor[0]),
                        hopper::pack_bf16(f[6] * factor[1], f[7] * factor[1]));
  }
}

/// Reads a warp's 16 rows, 64 columns wide, from row `first` of swizzled 128-byte rows on: its A
/// operand of four products, 16 columns each.
__device__ __forceinline__ void load_rows(std::uint32_t (&operand)[16], const unsigned char* rows,
                                          int first) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int row = first + lane % 16;
  const std::uint32_t base = hopper::shared_address(rows) + row * 128;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    std::uint32_t matrices[4];
    hopper::ldmatrix_x4(matrices, base + (((2 * i + lane / 16) ^ (row % 8)) * 16));
#pragma unroll
    for (int j = 0; j < 4; ++j) operand[4 * i + j] = matrices[j];
  }
}

/// Stores rows [first, rows) of 16 staged rows to `out`, `stride` elements apart, in pieces of 16
/// bytes.
template <int kColumns>
__device__ __forceinline__ void store_rows(void* out, std::int64_t stride,
                                           const unsigned char* staging, int panel_bytes, int rows,
                                           int first = 0) {
  constexpr int kPieces = kColumns / 8;
  constexpr int kRowsAtOnce = 32 / kPieces;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int piece = lane % kPieces;
  auto* bytes = static_cast<unsigned char*>(out) + piece * 16;
#pragma unroll
  for (int i = 0; i < 16; i += kRowsAtOnce) {
    const int r = i + lane / kPieces;
    const uint4 value = *reinterpret_cast<const uint4*>(staging + piece / 8 * panel_bytes +
                                                        r * 128 + (((piece % 8) ^ (r % 8)) * 16));
    if (r >= first && r < rows) *reinterpret_cast<uint4*>(bytes + r * stride * 2) = value;
  }
}

/// Stores 16 rows of a warp in fp32, kColumns wide, as they lie in its registers: nothing is
/// rounded. Rows from `rows` on are left out.
template <int kColumns>
__device__ __forceinline__ void store_rows_fp32(float* out, std::int64_t stride,
                                                const float (&fragment)[kColumns / 2], float factor,
                                                int rows) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = lane / 4 + 8 * half;
    if (row >= rows) continue;
    auto* to = reinterpret_cast<float2*>(out + row * stride + lane % 4 * 2);
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j) {
      const float* f = fragment + 4 * j + 2 * half;
      to[4 * j] = make_float2(f[0] * factor, f[1] * factor);
    }
  }
}

}  // namespace stowage::kernels::attention
