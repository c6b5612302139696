#pragma once

#include <cstdint>

#include "kernels/gated_delta/gated_delta_wgmma.hpp"
#include "kernels/hopper/convert.cuh"
#include "kernels/hopper/cp_async_16.cuh"
#include "kernels/hopper/cp_async_bulk.cuh"
#include "kernels/hopper/fence.cuh"
#include "kernels/hopper/fresh_lane.cuh"
#include "kernels/hopper/matrix_move.cuh"
#include "kernels/hopper/mbarrier.cuh"
#include "kernels/hopper/named_barrier.cuh"
#include "kernels/hopper/stmatrix_trans.cuh"
#include "kernels/hopper/tensor_map.hpp"
#include "kernels/hopper/warp.cuh"
#include "kernels/hopper/wgmma.cuh"

/// What the kernels of the warp-group products share on the device.
///
/// Operands in shared memory are tiles of rows of 128 bytes (64 bf16), 128-byte swizzled; a wider
/// matrix is several tiles, one per 64 columns.
namespace stowage::kernels::gated_delta {

using namespace hopper;
using execution::Bf16;

constexpr int kTileBytes = kC * 128;
constexpr int kKeyBytes = 2 * kTileBytes;  // (64 tokens, 128)
constexpr int kGroup = 128;                // threads of a warpgroup
constexpr float kLog2E = 1.4426950408889634F;

/// A thread's place in its warpgroup, and in the accumulator: rows `row` and `row` + 8, columns
/// 8 j + `column` and + 1.
struct Place {
  int warp, lane, row, column;
  __device__ __forceinline__ Place() {
    warp = uniform_warp_index() % 4;
    lane = static_cast<int>(threadIdx.x % 32U);
    row = 16 * warp + lane / 4;
    column = 2 * (lane % 4);
  }
  /// The same, made anew: for loops without registers to keep what follows from it.
  __device__ __forceinline__ Place again() const {
    Place place = *this;
    place.lane = fresh_lane();
    place.row = 16 * warp + place.lane / 4;
    place.column = 2 * (place.lane % 4);
    return place;
  }
};

/// Where a chunk of 16 bytes of a row lies. Tiles begin at multiples of 1024.
__device__ __forceinline__ std::uint32_t tile_address(std::uint32_t tile, int row, int chunk) {
  return tile + static_cast<std::uint32_t>(row * 128 + ((chunk ^ (row & 7)) << 4));
}

/// Starts copies of (64, 64 kTiles) from global memory into kTiles tiles, by kThreads threads of
/// which this one is `thread`; rows from `rows` on become zero.
template <int kTiles, int kThreads>
__device__ __forceinline__ void copy_tiles(std::uint32_t tile, const Bf16* from,
                                           std::int64_t stride, int rows, int thread) {
  constexpr int kChunks = 8 * kTiles, kStep = kThreads / kChunks;
  static_assert(kStep % 8 == 0, "the swizzle of a step is that of the first row");
  const int first = thread / kChunks, chunk = thread % kChunks;
  const std::uint32_t to =
      tile_address(tile + static_cast<std::uint32_t>(chunk / 8 * kTileBytes), first, chunk % 8);
  const Bf16* next = from + first * stride + 8 * chunk;
#pragma unroll
  for (int row = 0; row < kC; row += kStep) {
    const bool there = first + row < rows;
    async_copy_16(to + static_cast<std::uint32_t>(row * 128), there ? next : from, there);
    next += kStep * stride;
  }
}

/// A matrix in global memory as tiles of 64 rows of 64 columns; rows behind its last are zeros.
inline CUtensorMap tile_map(const Bf16* base, std::int64_t rows, std::int64_t columns,
                            std::int64_t stride) {
  const std::uint64_t extents[] = {static_cast<std::uint64_t>(columns),
                                   static_cast<std::uint64_t>(rows)};
  const std::uint64_t strides[] = {static_cast<std::uint64_t>(stride) * sizeof(Bf16)};
  constexpr std::uint32_t kBox[] = {64, kC};
  return make_tensor_map(TensorMapType::bf16, base, extents, strides, kBox, Swizzle::b128);
}
inline CUtensorMap qkv_map(const Arrays<Bf16, float>& p) {
  return tile_map(p.qkv, p.tokens, 2 * p.keys() + p.value_heads * std::int64_t{p.value_dim},
                  p.qkv_stride);
}
inline CUtensorMap dy_map(const Arrays<Bf16, float>& p) {
  const std::int64_t columns = p.value_heads * std::int64_t{p.value_dim};
  return tile_map(p.dy, p.tokens, columns, columns);
}

/// Loads 128 columns of 64 tokens.
__device__ __forceinline__ void load_wide(std::byte* to, const CUtensorMap* map, Mbarrier* barrier,
                                          int column, int token) {
  bulk_load_2d(to, map, barrier, column, token);
  bulk_load_2d(to + kTileBytes, map, barrier, column + 64, token);
}

constexpr int kFactorBytes = kFactors * kC * 4, kWalkBytes = (kThrough + 1) * kC * 4;

/// The values of neighbouring tokens at the columns of an accumulator, i of its 8 j + column.
__device__ __forceinline__ float2 pair_of(const float* values, int j, const Place& at) {
  return *reinterpret_cast<const float2*>(values + 8 * j + at.column);
}

/// A smaller logarithm is a decay to 0 in fp32; sums of 64 of these still have their digits.
constexpr float kNoDecay = -104;

/// Sums up to each token of a chunk's logarithms of decays, two tokens a lane. Returns that of all.
__device__ __forceinline__ float sum_logs(const float (&log)[2], float (&sums)[2], int lane) {
  const float first = fmaxf(log[0], kNoDecay), both = first + fmaxf(log[1], kNoDecay);
  float sum = both;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const float other = __shfl_up_sync(0xFFFFFFFFU, sum, static_cast<unsigned>(step));
    if (lane >= step) sum += other;
  }
  sums[0] = sum - both + first;
  sums[1] = sum;
  return __shfl_sync(0xFFFFFFFFU, sum, 31);
}

/// An accumulator of pairs of tokens: times a factor of each row (those of `at.row` and + 8) and
/// column and the decay between them; 0 above the diagonal, on it too if kStrict, and between
/// documents.
template <bool kStrict>
__device__ __forceinline__ void decay_pairs(float (&d)[kC / 2], float2 rows, const float* columns,
                                            const float* sums, const int* documents,
                                            const Place& at) {
  const float row_factors[2] = {rows.x, rows.y};
  const float row_sums[2] = {sums[at.row], sums[at.row + 8]};
  const int row_documents[2] = {documents[at.row], documents[at.row + 8]};
#pragma unroll
  for (int j8 = 0; j8 < kC / 8; ++j8) {
    const int j = 8 * j8 + at.column;
    const float2 factor = pair_of(columns, j8, at), sum = pair_of(sums, j8, at);
    const int2 document = *reinterpret_cast<const int2*>(documents + j);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int row = e / 2, i = at.row + 8 * row, column = j + e % 2;
      const bool reaches = (kStrict ? i > column : i >= column) &&
                           (e % 2 == 0 ? document.x : document.y) == row_documents[row];
      // Above the diagonal the difference is positive: the power is not needed, nor infinite.
      const float power = ex2(kLog2E * fminf(row_sums[row] - (e % 2 == 0 ? sum.x : sum.y), 0));
      const float decayed =
          d[4 * j8 + e] * (row_factors[row] * (e % 2 == 0 ? factor.x : factor.y) * power);
      d[4 * j8 + e] = reaches ? decayed : 0;
    }
  }
}

/// A operand of V^T: rows are columns of V, K is its tokens 16 k .. 16 k + 15, from a tile of V.
__device__ __forceinline__ void load_transposed(std::uint32_t (&a)[4], std::uint32_t tile, int k,
                                                const Place& at) {
  const int token = 16 * k + at.lane / 16 * 8 + at.lane % 8;
  ldmatrix_x4_trans(a, tile_address(tile, token, 2 * at.warp + at.lane / 8 % 2));
}

/// The same of all tokens of a chunk.
__device__ __forceinline__ void load_tokens(std::uint32_t (&a)[kC / 4], std::uint32_t tile,
                                            const Place& at) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    std::uint32_t some[4];
    load_transposed(some, tile, k, at);
#pragma unroll
    for (int i = 0; i < 4; ++i) a[4 * k + i] = some[i];
  }
}

/// An accumulator rounded to the A operand of the next product.
template <int kCount>
__device__ __forceinline__ void to_operand(std::uint32_t (&a)[kCount],
                                           const float (&d)[2 * kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) a[i] = pack_bf16(d[2 * i], d[2 * i + 1]);
}

/// The same times `factor(j, row)` at the columns 8 j + column and + 1, of a row or row + 8.
template <int kCount, class Factor>
__device__ __forceinline__ void to_operand(std::uint32_t (&a)[kCount], const float (&d)[2 * kCount],
                                           const Factor& factor) {
#pragma unroll
  for (int j = 0; j < kCount / 2; ++j) {
    const float2 f = factor(j);
    a[2 * j] = pack_bf16(d[4 * j] * f.x, d[4 * j + 1] * f.y);
    a[2 * j + 1] = pack_bf16(d[4 * j + 2] * f.x, d[4 * j + 3] * f.y);
  }
}

/// d times `factor(j)` at the columns 8 j + column and + 1.
template <int kCount, class Factor>
__device__ __forceinline__ void scale_columns(float (&d)[kCount], const Factor& factor) {
#pragma unroll
  for (int j = 0; j < kCount / 4; ++j) {
    const float2 f = factor(j);
    d[4 * j] *= f.x;
    d[4 * j + 1] *= f.y;
    d[4 * j + 2] *= f.x;
    d[4 * j + 3] *= f.y;
  }
}

/// Issues d (+)= a b, b (., kN) of tiles whose rows are along N (K-major): the steps [kFirst, kEnd)
/// of 16 of K.
template <int kN, int kFirst, int kEnd, int kCount>
__device__ __forceinline__ void issue_rows(float (&d)[kN / 2], const std::uint32_t (&a)[kCount],
                                           std::uint32_t tile, bool add) {
  const std::uint64_t b = wgmma_descriptor(tile, Swizzle::b128, 16, 8 * row_bytes(Swizzle::b128));
  wgmma_fence();
#pragma unroll
  for (int k = kFirst; k < kEnd; ++k)
    Wgmma<kN>::template rs<0>(d, a[4 * k], a[4 * k + 1], a[4 * k + 2], a[4 * k + 3],
                              advance(b, k / 4 * kTileBytes + k % 4 * 32), add || k > kFirst);
  wgmma_commit_group();
}

/// Issues d (+)= a b, b (16 kSteps, kN) of tiles whose rows are along K (MN-major).
template <int kN, int kSteps>
__device__ __forceinline__ void issue_columns(float (&d)[kN / 2],
                                              const std::uint32_t (&a)[4 * kSteps],
                                              std::uint32_t tile, bool add) {
  const std::uint64_t b =
      wgmma_descriptor(tile, Swizzle::b128, kTileBytes, 8 * row_bytes(Swizzle::b128));
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < kSteps; ++k)
    Wgmma<kN>::template rs<1>(d, a[4 * k], a[4 * k + 1], a[4 * k + 2], a[4 * k + 3],
                              advance(b, k * 16 * 128), add || k > 0);
  wgmma_commit_group();
}

/// Keeps the A operand's registers of a product as they are up to here, after the wait.
template <int kCount>
__device__ __forceinline__ void keep_operand(std::uint32_t (&a)[kCount]) {
  pin_registers(a);
}

/// Bytes of a warp's room for the two below.
constexpr int kTokenRoom = kC * 32;
constexpr int kStateRoom = 16 * 2 * kWide;

/// Stores a transposed result of 64 tokens, an A operand of the warp's 16 columns of V: 16 bytes at
/// `to(token, half)`, of the tokens before `rows`.
template <class To>
__device__ __forceinline__ void store_tokens(const To& to, int rows, const std::uint32_t (&a)[16],
                                             std::byte* room, const Place& at) {
  const std::uint32_t base = shared_address(room);
  const auto address = [base](int row, int half) {
    return base + static_cast<std::uint32_t>(row * 32 + ((half ^ (row >> 2 & 1)) << 4));
  };
  __syncwarp();
#pragma unroll
  for (int k = 0; k < 4; ++k)
    stmatrix_x4_trans(address(16 * k + at.lane / 16 * 8 + at.lane % 8, at.lane / 8 % 2), a[4 * k],
                      a[4 * k + 1], a[4 * k + 2], a[4 * k + 3]);
  __syncwarp();
#pragma unroll
  for (int i = at.lane; i < 2 * kC; i += 32) {
    const int row = i / 2, half = i % 2;
    if (row < rows)
      *reinterpret_cast<uint4*>(to(row, half)) =
          *reinterpret_cast<const uint4*>(room + (address(row, half) - base));
  }
}
/// As rows of a matrix, from the warp's first column on.
__device__ __forceinline__ void store_rows(Bf16* to, std::int64_t stride, int rows,
                                           const std::uint32_t (&a)[16], std::byte* room,
                                           const Place& at) {
  store_tokens([=](int row, int half) { return to + row * stride + 8 * half; }, rows, a, room, at);
}
/// As the warp's columns of a tile.
__device__ __forceinline__ void store_tile(Bf16* tile, const std::uint32_t (&a)[16],
                                           std::byte* room, const Place& at) {
  const int chunk = 2 * at.warp;
  store_tokens(
      [=](int row, int half) { return tile + row * 64 + ((chunk + half) ^ (row & 7)) * 8; }, kC, a,
      room, at);
}

/// Stores the warp's 16 of 64 rows of a state, an A operand, as rows of two tiles.
__device__ __forceinline__ void store_state(Bf16* tiles, const std::uint32_t (&a)[32],
                                            std::byte* room, const Place& at) {
  const std::uint32_t base = shared_address(room);
  constexpr int kPanel = 16 * 128;
  __syncwarp();
#pragma unroll
  for (int k = 0; k < kWide / 16; ++k)
    stmatrix_x4(tile_address(base + static_cast<std::uint32_t>(k / 4 * kPanel), at.lane % 16,
                             2 * k % 8 + at.lane / 16),
                a[4 * k], a[4 * k + 1], a[4 * k + 2], a[4 * k + 3]);
  __syncwarp();
#pragma unroll
  for (int i = at.lane; i < 2 * kPanel / 16; i += 32)  // as they lie
    *reinterpret_cast<uint4*>(tiles + (i / 128 * kC + 16 * at.warp) * 64 + i % 128 * 8) =
        *reinterpret_cast<const uint4*>(room + 16 * i);
}

/// A state in fp32, (64, 128) of rows from `matrix` on, and back.
__device__ __forceinline__ void load_matrix(float (&s)[kWide / 2], const float* matrix,
                                            const Place& at) {
#pragma unroll
  for (int i = 0; i < kWide / 2; i += 2) {
    const float2 v = *reinterpret_cast<const float2*>(matrix + (at.row + (i & 2) * 4) * kWide +
                                                      2 * (i & ~3) + at.column);
    s[i] = v.x;
    s[i + 1] = v.y;
  }
}
__device__ __forceinline__ void store_matrix(float* matrix, const float (&s)[kWide / 2],
                                             const Place& at) {
#pragma unroll
  for (int i = 0; i < kWide / 2; i += 2)
    *reinterpret_cast<float2*>(matrix + (at.row + (i & 2) * 4) * kWide + 2 * (i & ~3) + at.column) =
        make_float2(s[i], s[i + 1]);
}

}  // namespace stowage::kernels::gated_delta
