#pragma once

#include <cstdint>

#include "kernels/hopper/named_barrier.cuh"
#include "kernels/hopper/warp.cuh"
#include "kernels/pack.cuh"

/// What the norms' kernels share: teams of warps that hold one row (or one group of it) in
/// registers.
namespace stowage::kernels::norm {

inline constexpr int kWarpSize = 32;

/// kWarps warps that hold up to kWarps * 32 * kPacks packs of 16 bytes of a row, pack p of all
/// lanes side by side. A block of 256 threads has as many teams as fit into it.
template <int kWarps, int kPacks>
struct Team {
  static constexpr int kLanes = kWarps * kWarpSize;
  static constexpr int kTeams = kWarps < 8 ? 8 / kWarps : 1;
  static constexpr int kThreads = kTeams * kLanes;

  /// Shared memory of the sums of a block's teams.
  using Slots = float[kTeams][2][kWarps];

  __device__ static int index() { return static_cast<int>(threadIdx.x) / kLanes; }
  /// Which pack of the row is pack p of this thread.
  __device__ static int pack(int p) { return p * kLanes + static_cast<int>(threadIdx.x) % kLanes; }

  /// The sum over the team in a fixed order, in all its threads. Calls alternate between two sets
  /// of slots, so one barrier of the team a call is enough.
  __device__ static float sum(float value, Slots& slots, int& turn) {
    value = hopper::lanes_sum<kWarpSize>(value);
    if constexpr (kWarps > 1) {
      const int warp = static_cast<int>(threadIdx.x) % kLanes / kWarpSize;
      if (threadIdx.x % kWarpSize == 0) slots[index()][turn][warp] = value;
      hopper::named_barrier_sync(index() + 1, kLanes);
      value = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) value += slots[index()][turn][w];
      turn ^= 1;
    }
    return value;
  }
};

/// Makes the compiler take the packs as they are now: without it, it keeps values that it unpacked
/// before a barrier in twice as many registers instead of unpacking them again after it.
template <int kPacks>
__device__ __forceinline__ void stay_packed(uint4 (&packs)[kPacks]) {
#pragma unroll
  for (int p = 0; p < kPacks; ++p)
    asm volatile("" : "+r"(packs[p].x), "+r"(packs[p].y), "+r"(packs[p].z), "+r"(packs[p].w));
}

/// The sum over a block of 1024 threads or fewer, in all threads, for the paths without teams.
__device__ inline float block_sum(float value) {
  __shared__ float slots[kWarpSize];
  value = hopper::lanes_sum<kWarpSize>(value);
  __syncthreads();  // the slots of a call before have been read
  if (threadIdx.x % kWarpSize == 0) slots[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  value = 0;
  for (unsigned warp = 0; warp < blockDim.x / kWarpSize; ++warp) value += slots[warp];
  return value;
}

/// Calls f.operator()<kWarps, kPacks>() with the smallest team that holds `packs` packs, at most
/// kMost (4 or 2) a thread: fewer for kernels that keep more beside them. False if none does.
template <int kMost, class F>
bool with_team(std::int64_t packs, F&& f) {
  constexpr int kSpread = 8 / kMost;  // warps in place of packs
  if (packs <= 64) return f.template operator()<1, 2>(), true;
  if (packs <= 128) return f.template operator()<(kMost < 4 ? 2 : 1), (kMost < 4 ? 2 : 4)>(), true;
  if (packs <= 256) return f.template operator()<kSpread, kMost>(), true;
  if constexpr (kMost >= 4)
    if (packs <= 384) return f.template operator()<2 * kSpread, 3 * kMost / 4>(), true;
  if (packs <= 512) return f.template operator()<2 * kSpread, kMost>(), true;
  if (packs <= 1024) return f.template operator()<4 * kSpread, kMost>(), true;
  if constexpr (kMost >= 4)
    if (packs <= 2048) return f.template operator()<8 * kSpread, kMost>(), true;
  return false;
}

}  // namespace stowage::kernels::norm
