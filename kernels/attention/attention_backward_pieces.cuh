#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/attention_launch.hpp"
#include "kernels/attention/attention_schedule.cuh"
#include "kernels/hopper/global_order.cuh"

/// Tiles of keys in pieces, one for each query head of their group, in
/// attention_backward_kv_sm90.cu and attention_backward_kv256_sm90.cu: every piece leaves its dK
/// and dV in fp32, and the last to do so adds all up.
namespace stowage::kernels::attention {

/// Writes a thread's registers of a gradient, those of a warp's lanes side by side.
template <int kRegisters>
__device__ __forceinline__ void store_piece(float4* out, const float (&gradient)[kRegisters]) {
#pragma unroll
  for (int j = 0; j < kRegisters / 4; ++j) {
    __stcg(out + 32 * j, make_float4(gradient[4 * j], gradient[4 * j + 1], gradient[4 * j + 2],
                                     gradient[4 * j + 3]));
  }
}

/// Adds `count` pieces up in order, `stride` apart.
template <int kRegisters>
__device__ __forceinline__ void sum_pieces(float (&gradient)[kRegisters], const float4* pieces,
                                           int count, int stride) {
#pragma unroll
  for (float& sum : gradient) sum = 0;
#pragma unroll 1
  for (int piece = 0; piece < count; ++piece, pieces += stride) {
#pragma unroll
    for (int j = 0; j < kRegisters / 4; ++j) {
      const float4 share = __ldcg(pieces + 32 * j);  // from L2, where all multiprocessors' are
      gradient[4 * j] += share.x;
      gradient[4 * j + 1] += share.y;
      gradient[4 * j + 2] += share.z;
      gradient[4 * j + 3] += share.w;
    }
  }
}

/// Leaves a warp's gradients of a piece, dK and dV or one of them; gives whether it is the last of
/// its tile's pieces to do so, and they then are the sums. `warp`: of the tile's kPieceWarps, each
/// of which goes alone. `heads`: pieces of the tile, the heads of its group.
///
/// No piece waits for another. The last one reads its own as well, so that the sum is always that
/// over all heads in their order: its bits do not depend on which is last. They are not those of
/// a tile that takes all heads, whose products add to one accumulator.
template <int kRegisters, class... Gradients>
__device__ __forceinline__ bool join_pieces(const Tile& tile, int warp, int heads,
                                            const BackwardParameters& p, float (&first)[kRegisters],
                                            Gradients&... others) {
  constexpr int kGradient = kRegisters / 4 * 32;  // float4s of a warp
  constexpr int kPiece = (1 + static_cast<int>(sizeof...(others))) * kGradient;
  const int place = tile.in_pieces * kPieceWarps + warp;
  const int lane = static_cast<int>(threadIdx.x % 32);
  float4* pieces =
      reinterpret_cast<float4*>(p.piece_sums) + std::int64_t{place} * heads * kPiece + lane;
  float4* mine = pieces + tile.first_head * kPiece;
  store_piece(mine, first);
  (store_piece(mine += kGradient, others), ...);
  // The warp's stores come before its first lane's addition, which releases them; what that lane
  // acquires with it, all lanes may read behind the second barrier.
  __syncwarp();
  int arrived = 0;
  if (lane == 0) arrived = hopper::add_acquire_release(p.arrivals + place, 1);
  arrived = __shfl_sync(~0U, arrived, 0);
  __syncwarp();
  if (arrived != heads - 1) return false;
  sum_pieces(first, pieces, heads, kPiece);
  (sum_pieces(others, pieces += kGradient, heads, kPiece), ...);
  if (lane == 0) p.arrivals[place] = 0;  // for the next launch of the call
  return true;
}

}  // namespace stowage::kernels::attention
