#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/hopper/convert.cuh"
#include "kernels/hopper/cp_async_bulk.cuh"
#include "kernels/hopper/dependent_launch.cuh"
#include "kernels/hopper/fence.cuh"
#include "kernels/hopper/griddepcontrol.cuh"
#include "kernels/hopper/matrix_move.cuh"
#include "kernels/hopper/named_barrier.cuh"
#include "kernels/hopper/warp.cuh"
#include "kernels/hopper/wgmma.cuh"
#include "kernels/ssd/ssd_launch.hpp"

/// What the scan's kernels share on the device.
///
/// All operands are tiles of 64 rows of 128 bytes (64 bf16), 128-byte swizzled, as the copy engine
/// writes them; a wider matrix is several tiles, one per 64 columns. A state is held by a warpgroup
/// as the wgmma accumulator of its (64 columns of X) x (N) matrix.
namespace stowage::kernels::ssd {

using namespace hopper;

inline constexpr float kLog2E = 1.4426950408889634F;
inline constexpr int kTileBytes = kChunk * 128;
inline constexpr int kKStep = 16;                  ///< K of one wgmma
inline constexpr int kKMajorStep = 2 * kKStep;     ///< bytes to the next K in a row
inline constexpr int kMnMajorStep = 128 * kKStep;  ///< bytes to the next K, 16 rows further

/// Element i of a parameter that is bf16 or fp32.
__device__ __forceinline__ float parameter(const void* values, int i, bool bf16) {
  return bf16 ? __bfloat162float(static_cast<const __nv_bfloat16*>(values)[i])
              : static_cast<const float*>(values)[i];
}

/// log(1 + e^x) to about 2^-21, relative: a series in e^x where it is small.
__device__ __forceinline__ float softplus(float x) {
  const float t = ex2(fminf(x, 20) * kLog2E);
  float series = -1.0F / 6;
  series = 1.0F / 5 + t * series;
  series = -1.0F / 4 + t * series;
  series = 1.0F / 3 + t * series;
  series = -1.0F / 2 + t * series;
  series = t + t * t * series;
  return x > 20 ? x : t < 0.125F ? series : lg2(1 + t) * (1 / kLog2E);
}

/// sigmoid(x) from dt = log(1 + e^x): 1 - e^-dt, a series where dt is small.
__device__ __forceinline__ float sigmoid_of_softplus(float dt) {
  const float series = dt * (1 - dt * (1.0F / 2 - dt * (1.0F / 6 - dt * (1.0F / 24))));
  return dt < 0.125F ? series : 1 - ex2(-kLog2E * dt);
}

/// The head of a unit's strip; kColumns as of columns_of.
template <int kColumns>
__device__ __forceinline__ int head_of(const Sizes& sizes, int unit, int strip) {
  if constexpr (kColumns == kPart) return unit / sizes.parts;
  return (unit * kStrips + strip) / (kColumns / kStrip);
}

/// Heads that a unit may have columns of.
template <int kColumns>
inline constexpr int kUnitHeads = kColumns == kPart ? 1 : 2;

/// The first of a unit's heads, and the last.
template <int kColumns>
__device__ __forceinline__ int unit_head(const Sizes& sizes, int unit, int which) {
  return head_of<kColumns>(sizes, unit, which * (kStrips - 1));
}

/// The heads of a block of the scan whose units cut them: at most kScanUnits neighbours, each with
/// a place. `base`: the block's first unit in its group.
template <int kColumns>
struct CutHeads {
  static constexpr int kHeadStrips = kColumns / kStrip;
  static_assert((kScanUnits * kStrips + kHeadStrips - 2) / kHeadStrips < kScanUnits ||
                kColumns == kPart);
  int before;  ///< strips of the first head that lie before the block
  __device__ __forceinline__ explicit CutHeads(int base) : before(base * kStrips % kHeadStrips) {}
  /// The place of the head of a strip of unit v.
  __device__ __forceinline__ int of(int v, int strip) const {
    return (before + v * kStrips + strip) / kHeadStrips;
  }
  /// Strips of unit v that its first head has.
  __device__ __forceinline__ int own(int v) const {
    return min(kHeadStrips - (before + v * kStrips) % kHeadStrips, kStrips);
  }
  /// Whether the head at a place begins in the first `units` units of the block.
  __device__ __forceinline__ bool begins(int place, int units) const {
    const int strip = place * kHeadStrips - before;
    return strip >= 0 && strip < units * kStrips;
  }
  /// The head at a place; beyond the group's last one, that one again.
  __device__ __forceinline__ static int at(const Sizes& s, int group, int base, int place) {
    const int first = (group * s.group_units + base) * kStrips / kHeadStrips;
    return min(first + place, (group + 1) * s.group_units * kStrips / kHeadStrips - 1);
  }
};

/// Loads tiles of columns [column, ..) of 64 tokens, as many as a box of the map has.
__device__ __forceinline__ void load_tiles(std::byte* to, const CUtensorMap* map, Mbarrier* barrier,
                                           int column, int token,
                                           CachePolicy policy = CachePolicy::evict_normal) {
  bulk_load_3d(to, map, barrier, 0, token, column / kPart, policy);
}

/// Keeps the A operand's registers of a product as they are up to here, after the wait: the product
/// reads them while it runs, of which the compiler knows nothing.
template <int kCount>
__device__ __forceinline__ void keep_operand(std::uint32_t (&a)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(a[i])::"memory");
}

/// A thread's place in its warpgroup, and in the accumulator: rows `row` and `row` + 8, columns
/// 8 j + `column` and + 1. `group` and `warp` are known to be uniform, so what follows from them
/// (tile addresses, descriptors) stays in uniform registers.
struct Place {
  int group, warp, lane, thread, row, column;
  __device__ __forceinline__ Place() {
    const int index = uniform_warp_index();
    group = index / 4;
    warp = index % 4;
    lane = static_cast<int>(threadIdx.x % 32U);
    thread = 32 * warp + lane;
    row = 16 * warp + lane / 4;
    column = 2 * (lane % 4);
  }
  /// The same, made anew: for loops without registers to keep what follows from it.
  __device__ __forceinline__ Place again() const {
    Place place = *this;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(place.lane));
    place.thread = 32 * warp + place.lane;
    place.row = 16 * warp + place.lane / 4;
    place.column = 2 * (place.lane % 4);
    return place;
  }
};

/// Tiles are addressed in the shared window. Their first address is a multiple of 1024, so that the
/// swizzle is an exclusive or with the row's low bits, and a step of 2 k chunks one with 32 k.
__device__ __forceinline__ std::uint32_t tile_address(std::uint32_t tile, int row, int chunk) {
  return tile + static_cast<std::uint32_t>(row * 128 + ((chunk ^ (row & 7)) << 4));
}

/// The bf16 pairs of a tile at the accumulator's positions of column blocks 2 k and 2 k + 1: rows
/// row and row + 8 of the first, then of the second.
__device__ __forceinline__ void load_rows(std::uint32_t (&pairs)[4], std::uint32_t tile, int k,
                                          const Place& at) {
  const std::uint32_t first = tile_address(tile, 16 * at.warp + at.lane % 16, at.lane / 16);
  ldmatrix_x4(pairs, first ^ static_cast<std::uint32_t>(k << 5));
}

/// A operand of V^T: rows are columns of V, K is its tokens 16 k .. 16 k + 15, from a tile of V.
__device__ __forceinline__ void load_transposed(std::uint32_t (&a)[4], std::uint32_t tile, int k,
                                                const Place& at) {
  const int token = at.lane / 16 * 8 + at.lane % 8;
  const int chunk = 2 * at.warp + at.lane / 8 % 2;
  ldmatrix_x4_trans(a, tile_address(tile, token, chunk) + k * kMnMajorStep);
}

/// The same with token t scaled by factors[t], rounded to bf16 once more.
__device__ __forceinline__ void load_transposed_scaled(std::uint32_t (&a)[4], std::uint32_t tile,
                                                       const float* factors, int k,
                                                       const Place& at) {
  load_transposed(a, tile, k, at);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float2 f = *reinterpret_cast<const float2*>(factors + kKStep * k + 8 * half + at.column);
#pragma unroll
    for (int i = 2 * half; i < 2 * half + 2; ++i) {
      a[i] = pack_bf16(unpack_low(a[i]) * f.x, unpack_high(a[i]) * f.y);
    }
  }
}

/// Two neighbouring bf16 times factors: rounded to bf16, and what that loses.
__device__ __forceinline__ void scale_pair(std::uint32_t& a, std::uint32_t& rest, float2 factors) {
  const float low = unpack_low(a) * factors.x, high = unpack_high(a) * factors.y;
  a = pack_bf16(low, high);
  rest = pack_bf16(low - unpack_low(a), high - unpack_high(a));
}

/// The same as the sum of two bf16, for products whose operand must not lose digits.
__device__ __forceinline__ void load_transposed_split(std::uint32_t (&a)[4],
                                                      std::uint32_t (&rest)[4], std::uint32_t tile,
                                                      const float* factors, int k,
                                                      const Place& at) {
  load_transposed(a, tile, k, at);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float2 f = *reinterpret_cast<const float2*>(factors + kKStep * k + 8 * half + at.column);
#pragma unroll
    for (int i = 2 * half; i < 2 * half + 2; ++i) scale_pair(a[i], rest[i], f);
  }
}

/// 1 / x for a power of two x.
__device__ __forceinline__ float power_inverse(float x) {
  return __uint_as_float((254U << 23) - __float_as_uint(x));
}

/// A power of two that takes the largest magnitude of some values to [2^14, 2^15), where fp16 keeps
/// 11 digits of it and of all down to 2^-29 of it; and its inverse.
struct HalfScale {
  float factor, inverse;
  /// `largest`: that magnitude as the bits of an fp32.
  __device__ __forceinline__ explicit HalfScale(std::uint32_t largest) {
    const std::uint32_t exponent = min(268 - (largest >> 23), 253U);
    factor = __uint_as_float(exponent << 23);
    inverse = power_inverse(factor);
  }
};

/// Rounds accumulator columns 16 k .. 16 k + 15 to bf16 and stores them; `first` is the lane's
/// tile_address of its row and chunk lane / 16.
template <int kCount>
__device__ __forceinline__ void store_columns(std::uint32_t first, const float (&d)[kCount],
                                              int k) {
  const int i = 8 * k;
  stmatrix_x4((first ^ static_cast<std::uint32_t>(k % 4 << 5)) +
                  static_cast<std::uint32_t>(k / 4 * kTileBytes),
              pack_bf16(d[i], d[i + 1]), pack_bf16(d[i + 2], d[i + 3]),
              pack_bf16(d[i + 4], d[i + 5]), pack_bf16(d[i + 6], d[i + 7]));
}

/// Rounds an accumulator of 8 kBlocks columns to bf16 and stores it as operand tiles.
template <int kBlocks>
__device__ __forceinline__ void store_tiles(std::uint32_t tiles, const float (&d)[4 * kBlocks],
                                            const Place& at) {
  const std::uint32_t first = tile_address(tiles, 16 * at.warp + at.lane % 16, at.lane / 16);
#pragma unroll
  for (int k = 0; k < kBlocks / 2; ++k) store_columns(first, d, k);
}

/// The same, times a factor, as fp16.
template <int kBlocks>
__device__ __forceinline__ void store_tiles_f16(std::uint32_t tiles, const float (&d)[4 * kBlocks],
                                                float factor, const Place& at) {
  const std::uint32_t first = tile_address(tiles, 16 * at.warp + at.lane % 16, at.lane / 16);
#pragma unroll
  for (int k = 0; k < kBlocks / 2; ++k) {
    const auto pair = [&](int i) {
      return pack_f16(factor * d[8 * k + i], factor * d[8 * k + i + 1]);
    };
    stmatrix_x4((first ^ static_cast<std::uint32_t>(k % 4 << 5)) +
                    static_cast<std::uint32_t>(k / 4 * kTileBytes),
                pair(0), pair(2), pair(4), pair(6));
  }
}

/// Sends a warp's 16 rows of a 64-column result to columns [64 tile, 64 tile + 64) of the rows from
/// `token` on of the map's matrix (boxes of 16 rows), through 2 KiB of shared memory of its own;
/// rows beyond the matrix are left out. Ends with `finish_sends`.
__device__ __forceinline__ void send_rows(std::byte* staging, const float (&d)[32],
                                          const CUtensorMap* to, int tile, int token,
                                          const Place& at) {
  if (at.lane == 0) bulk_wait_group_read<0>();
  __syncwarp();
  const std::uint32_t first = tile_address(shared_address(staging), at.lane % 16, at.lane / 16);
#pragma unroll
  for (int k = 0; k < 4; ++k) store_columns(first, d, k);
  fence_proxy_async();
  __syncwarp();
  if (at.lane != 0) return;
  bulk_store_3d(to, staging, 0, token + 16 * at.warp, tile);
  bulk_commit_group();
}

/// Waits for a warp's sends; before its block ends.
__device__ __forceinline__ void finish_sends(const Place& at) {
  if (at.lane == 0) bulk_wait_group<0>();
}

/// Where the pieces of all segments begin, one after the other; `piece` may be the one after the
/// last.
__device__ __forceinline__ int piece_begin(const Sizes& sizes, int piece) {
  const int segment = piece / sizes.pieces;
  return segment * sizes.segment_chunks + (piece - segment * sizes.pieces) * sizes.piece_chunks;
}

/// Adds factor * a (64, N) fp32 matrix of global memory to the accumulator.
template <int kState>
__device__ __forceinline__ void add_matrix(float (&s)[kState / 2], const float* matrix,
                                           float factor, const Place& at) {
#pragma unroll
  for (int i = 0; i < kState / 2; i += 2) {
    const int row = at.row + (i & 2) * 4;
    const float2 v =
        *reinterpret_cast<const float2*>(matrix + row * kState + 2 * (i & ~3) + at.column);
    s[i] += factor * v.x;
    s[i + 1] += factor * v.y;
  }
}

template <int kState>
__device__ __forceinline__ void store_matrix(float* matrix, const float (&s)[kState / 2],
                                             const Place& at) {
#pragma unroll
  for (int i = 0; i < kState / 2; i += 2) {
    const int row = at.row + (i & 2) * 4;
    *reinterpret_cast<float2*>(matrix + row * kState + 2 * (i & ~3) + at.column) =
        make_float2(s[i], s[i + 1]);
  }
}

/// Adds factor * a matrix in fragment order: the accumulators' groups of four, of all threads of a
/// warpgroup in turn; for results that only the scan's kernels read.
template <int kState>
__device__ __forceinline__ void add_fragment(float (&s)[kState / 2], const float* fragment,
                                             float factor, const Place& at) {
#pragma unroll
  for (int i = 0; i < kState / 8; ++i) {
    const float4 v = reinterpret_cast<const float4*>(fragment)[i * 128 + at.thread];
    s[4 * i] += factor * v.x;
    s[4 * i + 1] += factor * v.y;
    s[4 * i + 2] += factor * v.z;
    s[4 * i + 3] += factor * v.w;
  }
}

/// The accumulator itself from fragment order.
template <int kState>
__device__ __forceinline__ void load_fragment(float (&s)[kState / 2], const float* fragment,
                                              const Place& at) {
#pragma unroll
  for (int i = 0; i < kState / 8; ++i) {
    const float4 v = reinterpret_cast<const float4*>(fragment)[i * 128 + at.thread];
    s[4 * i] = v.x;
    s[4 * i + 1] = v.y;
    s[4 * i + 2] = v.z;
    s[4 * i + 3] = v.w;
  }
}

template <int kState>
__device__ __forceinline__ void store_fragment(float* fragment, const float (&s)[kState / 2],
                                               const Place& at) {
#pragma unroll
  for (int i = 0; i < kState / 8; ++i) {
    reinterpret_cast<float4*>(fragment)[i * 128 + at.thread] =
        make_float4(s[4 * i], s[4 * i + 1], s[4 * i + 2], s[4 * i + 3]);
  }
}

/// What enters a segment: the local states of the pieces before it (after it, in reverse), each
/// decayed through those between, nearest first, until a document boundary, the edge, or a piece of
/// which nothing is left (its decay is negative).
template <int kState, int kColumns>
__device__ __forceinline__ void incoming_state(float (&s)[kState / 2], const Sizes& sizes,
                                               int segment, bool reverse, int unit,
                                               const Span* spans, const float* partials,
                                               const float* through, const float* edge_state,
                                               const Place& at) {
#pragma unroll
  for (float& value : s) value = 0;
  const std::int64_t size = static_cast<std::int64_t>(kPart) * kState;
  int border = (reverse ? segment + 1 : segment) * sizes.pieces;  // between two pieces
  float decay = 1;
  while (decay != 0) {
    const int chunk = piece_begin(sizes, border);
    if (reverse ? chunk >= sizes.chunks : border == 0) {
      if (edge_state != nullptr) add_matrix<kState>(s, edge_state + unit * size, decay, at);
      return;
    }
    if (spans[chunk * kChunk].start != 0) return;
    const int piece = reverse ? border : border - 1;
    const float across = through[piece * sizes.heads + head_of<kColumns>(sizes, unit, at.warp)];
    if (across < 0) return;
    add_fragment<kState>(
        s, partials + (static_cast<std::int64_t>(piece) * sizes.units + unit) * size, decay, at);
    decay *= across;
    border += reverse ? 1 : -1;
  }
}

}  // namespace stowage::kernels::ssd
