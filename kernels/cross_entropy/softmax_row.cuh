#pragma once

#include "kernels/access.cuh"
#include "kernels/cross_entropy/softmax_launch.hpp"
#include "kernels/hopper/warp.cuh"

/// What the kernels of softmax.cu and softmax_shards.cu have in common: sums of exponentials that
/// are merged in a fixed order, and a row's gradients.
namespace stowage::kernels::cross_entropy {

inline constexpr int kThreads = 256;  // small blocks: while one waits for its cluster, others load
inline constexpr int kWarpSize = 32;
inline constexpr int kWarps = kThreads / kWarpSize;
inline constexpr float kLog2E = 1.4426950408889634F;
inline constexpr float kLowest = -3.4e38F;  // below every logit; -inf - -inf would be NaN

/// The sum of exp(x - maximum) over some x, with their maximum.
struct Exponentials {
  float maximum, sum;
};

__device__ __forceinline__ Exponentials merge(Exponentials a, Exponentials b) {
  const float maximum = fmaxf(a.maximum, b.maximum);
  return {maximum, a.sum * hopper::ex2((a.maximum - maximum) * kLog2E) +
                       b.sum * hopper::ex2((b.maximum - maximum) * kLog2E)};
}

/// Merged over the block in a fixed order, in all threads.
__device__ inline Exponentials merge_block(Exponentials mine) {
  __shared__ Exponentials of_warps[kWarps];
#pragma unroll
  for (int mask = 1; mask < kWarpSize; mask *= 2)
    mine = merge(mine,
                 {__shfl_xor_sync(~0U, mine.maximum, mask), __shfl_xor_sync(~0U, mine.sum, mask)});
  if (threadIdx.x % kWarpSize == 0) of_warps[threadIdx.x / kWarpSize] = mine;
  __syncthreads();
  mine = of_warps[0];
  for (int warp = 1; warp < kWarps; ++warp) mine = merge(mine, of_warps[warp]);
  return mine;
}

/// Adds kUnroll accesses of kSize logits to what a thread has.
template <int kUnroll, int kSize>
__device__ __forceinline__ void add(Exponentials& mine, const float (&values)[kUnroll][kSize]) {
  float maximum = mine.maximum;
#pragma unroll
  for (int u = 0; u < kUnroll; ++u)
#pragma unroll
    for (int i = 0; i < kSize; ++i) maximum = fmaxf(maximum, values[u][i]);
  mine.sum *= hopper::ex2((mine.maximum - maximum) * kLog2E);
  mine.maximum = maximum;
#pragma unroll
  for (int u = 0; u < kUnroll; ++u)
#pragma unroll
    for (int i = 0; i < kSize; ++i) mine.sum += hopper::ex2((values[u][i] - maximum) * kLog2E);
}

/// Whether rows have a z-loss.
template <class Args>
concept HasZLoss = requires(const Args& args) {
  args.z_losses;
};

__device__ __forceinline__ float log_sum(Exponentials all) { return all.maximum + logf(all.sum); }

/// How logits become gradients in one row.
struct Gradient {
  float maximum, factor, scale;
  std::int32_t target;  // negative: all zero

  /// @param given scale of the gradient  @param wanted target's column
  __device__ Gradient(float given, Exponentials all, std::int32_t wanted)
      : maximum(all.maximum), factor(given / all.sum), scale(given), target(wanted) {}
  __device__ float operator()(float logit, std::int64_t column) const {
    const float share = hopper::ex2((logit - maximum) * kLog2E) * factor;
    return target < 0 ? 0.0F : column == target ? share - scale : share;
  }
};

/// @param args rows of logits, with a scale  @param all of the whole row  @param target as above
template <class Args>
__device__ __forceinline__ Gradient gradient_of(const Args& args, Exponentials all,
                                                std::int32_t target) {
  Gradient gradient(*args.scale, all, target);
  if constexpr (HasZLoss<Args>) gradient.factor *= 1 + 2 * args.z_coeff * log_sum(all);
  return gradient;
}

/// Stores kSize gradients; bf16 ones in half of the bytes of their logits.
template <class S, int kSize>
__device__ __forceinline__ void store(S* to, const float (&values)[kSize]) {
  if constexpr (kSize == 1) {
    *to = device::round_to<S>(values[0]);
  } else if constexpr (sizeof(S) == 2) {
    *reinterpret_cast<uint2*>(to) = {hopper::pack_bf16(values[0], values[1]),
                                     hopper::pack_bf16(values[2], values[3])};
  } else {
    *reinterpret_cast<uint4*>(to) = device::pack<float>(values);
  }
}

/// @param args rows of logits  @param chosen the target's logit  @param all of the whole row
template <class Args>
__device__ __forceinline__ void store_loss(const Args& args, std::int64_t row, float chosen,
                                           Exponentials all) {
  const bool counts = args.targets[row] >= 0;
  args.losses[row] = counts ? logf(all.sum) + (all.maximum - chosen) : 0.0F;
  if (args.hits != nullptr) args.hits[row] = counts && chosen >= all.maximum ? 1.0F : 0.0F;
  if constexpr (HasZLoss<Args>) {
    const float z = log_sum(all);
    args.z_losses[row] = counts ? args.z_coeff * z * z : 0.0F;
  }
}

}  // namespace stowage::kernels::cross_entropy
