#pragma once

#include "kernels/hopper/mma.cuh"
#include "kernels/ssd/ssd_device.cuh"

/// The operand CB . 2^(a_i - a_j) dt_j of the scan's outputs (ssd_scan.cu), of a unit of one head
/// or of two.
namespace stowage::kernels::ssd {

/// Bit i: accumulator position i lies on or below the diagonal.
__device__ __forceinline__ std::uint32_t causal_bits(const Place& at) {
  std::uint32_t bits = 0;
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    const int column = 8 * (i / 4) + at.column + (i & 1);
    if (column <= at.row + (i & 2) * 4) bits |= 1U << i;
  }
  return bits;
}

/// The accumulator positions of one row whose column is in the row's document, as bits.
__device__ __forceinline__ std::uint32_t row_bits(int start, int column, int shift) {
  const std::uint64_t columns = ~0ULL << max(start - 1, 0) >> column;
  std::uint32_t bits = 0;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    bits |= (static_cast<std::uint32_t>(columns >> (8 * j)) & 3U) << (4 * j + shift);
  }
  return bits;
}

/// Columns 8 j .. 8 j + 7 of `decayed`.
__device__ __forceinline__ void decay_columns(std::uint32_t (&m)[2], const float (&cb)[32],
                                              std::uint32_t bits, const float* factors, float row0,
                                              float row1, int j, const Place& at) {
  const float2 shift =
      *reinterpret_cast<const float2*>(factors + kRowShift * kChunk + 8 * j + at.column);
  float values[4] = {row0 - shift.x, row0 - shift.y, row1 - shift.x, row1 - shift.y};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float value = cb[4 * j + i] * ex2(values[i]);
    values[i] = bits >> (4 * j + i) & 1U ? value : 0;  // where masked it may be infinite
  }
  m[0] = pack_bf16(values[0], values[1]);
  m[1] = pack_bf16(values[2], values[3]);
}

/// The A operand CB . 2^(a_i - a_j) dt_j in bf16, zero where `bits` has none.
__device__ __forceinline__ void decayed(std::uint32_t (&m)[16], const float (&cb)[32],
                                        std::uint32_t bits, const float* factors, const Place& at) {
  const float row0 = factors[kRowLog * kChunk + at.row];
  const float row1 = factors[kRowLog * kChunk + at.row + 8];
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    std::uint32_t part[2];
    decay_columns(part, cb, bits, factors, row0, row1, j, at);
    m[2 * j] = part[0];
    m[2 * j + 1] = part[1];
  }
}

/// The same for two heads: the second's operand goes to the warp's rows of a tile, as CB's
/// registers have room for one.
__device__ __forceinline__ void decayed(std::uint32_t (&m)[16], std::byte* rows,
                                        const float (&cb)[32], std::uint32_t bits,
                                        const float* factors, int second, const Place& at) {
  const float* log = factors + kRowLog * kChunk + at.row;
  const float row0 = log[0], row1 = log[8], row2 = log[second], row3 = log[second + 8];
  const std::uint32_t first = tile_address(shared_address(rows), at.lane % 16, at.lane / 16);
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    std::uint32_t low[2], high[2];
    decay_columns(low, cb, bits, factors + second, row2, row3, 2 * k, at);
    decay_columns(high, cb, bits, factors + second, row2, row3, 2 * k + 1, at);
    stmatrix_x4(first ^ static_cast<std::uint32_t>(k << 5), low[0], low[1], high[0], high[1]);
    decay_columns(low, cb, bits, factors, row0, row1, 2 * k, at);
    decay_columns(high, cb, bits, factors, row0, row1, 2 * k + 1, at);
    m[4 * k] = low[0];
    m[4 * k + 1] = low[1];
    m[4 * k + 2] = high[0];
    m[4 * k + 3] = high[1];
  }
}

/// y += M X, M the operand m for the first `own` strips and what `rows` has for the others: by
/// products of a warp, as those of a warpgroup have one M for all columns.
__device__ __forceinline__ void add_strips(float (&y)[32], const std::uint32_t (&m)[16],
                                           const std::byte* rows, const std::byte* x, int own,
                                           const Place& at) {
  const std::uint32_t first = tile_address(0, at.lane % 16, at.lane / 16);
  const std::uint32_t second = first + shared_address(rows), tokens = first + shared_address(x);
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    std::uint32_t a[4];
    ldmatrix_x4(a, second ^ static_cast<std::uint32_t>(k << 5));
#pragma unroll
    for (int strip = 0; strip < kStrips; ++strip) {
      std::uint32_t of_strip[4], b[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) of_strip[i] = strip < own ? m[4 * k + i] : a[i];
      ldmatrix_x4_trans(b, (tokens ^ static_cast<std::uint32_t>(strip << 5)) + k * kMnMajorStep);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int i = 8 * strip + 4 * half;
        mma_16x8x16(y[i], y[i + 1], y[i + 2], y[i + 3], of_strip, b[2 * half], b[2 * half + 1]);
      }
    }
  }
}

/// scale_rows by strips: `own` of the first head, the others of the second.
__device__ __forceinline__ void scale_strips(float (&y)[32], const float* first,
                                             const float* second, int own, const Place& at) {
  const float rows[2][2] = {{first[at.row], first[at.row + 8]},
                            {second[at.row], second[at.row + 8]}};
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    const int row = (i & 2) / 2;
    y[i] *= i / 8 < own ? rows[0][row] : rows[1][row];
  }
}

}  // namespace stowage::kernels::ssd
