// Losses of rows of logits, and in their place the gradient; formulas in linear_cross_entropy.hpp.
//
// Bound by memory: a row is read once. A cluster of 1, 2, 4 or 8 blocks owns a row of up to 128 Ki
// logits and holds it in registers, 8 or 16 packs of 16 bytes a thread. Each thread reduces its
// logits to their maximum and the sum of exp(logit - maximum) (Milakov and Gimelshein, arXiv
// 1805.02867); threads, warps and blocks are merged in a fixed order, blocks through distributed
// shared memory. Behind that barrier all logits of the row have been read, so the gradient may
// overwrite them; in bf16 it takes half of their bytes. Longer rows, and rows that are not whole
// packs, are owned by one block that reads them twice: a step of its second pass reads kStep
// logits, waits for the block, and writes to bytes whose logits this and earlier steps have read.
// Arithmetic is fp32.

#include <cooperative_groups.h>

#include "kernels/access.cuh"
#include "kernels/cross_entropy/softmax_launch.hpp"
#include "kernels/hopper/warp.cuh"

namespace stowage::kernels::cross_entropy {
namespace {

using device::Access;
using execution::Bf16;

constexpr int kThreads = 256;  // small blocks: while one waits for its cluster, others load
constexpr int kWarpSize = 32;
constexpr int kWarps = kThreads / kWarpSize;
constexpr float kLog2E = 1.4426950408889634F;
constexpr float kLowest = -3.4e38F;  // below every logit; -inf - -inf would be NaN

// The sum of exp(x - maximum) over some x, with their maximum.
struct Exponentials {
  float maximum, sum;
};

__device__ __forceinline__ Exponentials merge(Exponentials a, Exponentials b) {
  const float maximum = fmaxf(a.maximum, b.maximum);
  return {maximum, a.sum * hopper::ex2((a.maximum - maximum) * kLog2E) +
                       b.sum * hopper::ex2((b.maximum - maximum) * kLog2E)};
}

// Merged over the block in a fixed order, in all threads.
__device__ Exponentials merge_block(Exponentials mine) {
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

// Adds kUnroll accesses of kSize logits to what a thread has.
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

// How logits become gradients in one row.
struct Gradient {
  float maximum, factor, scale;
  std::int32_t target;  // negative: all zero

  __device__ Gradient(const Logits& args, Exponentials all, std::int32_t wanted)
      : maximum(all.maximum), target(wanted) {
    scale = *args.scale;
    factor = scale / all.sum;
  }
  __device__ float operator()(float logit, std::int64_t column) const {
    const float share = hopper::ex2((logit - maximum) * kLog2E) * factor;
    return target < 0 ? 0.0F : column == target ? share - scale : share;
  }
};

// Stores kSize gradients; bf16 ones in half of the bytes of their logits.
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

__device__ __forceinline__ void store_loss(const Logits& args, std::int64_t row, float chosen,
                                           Exponentials all) {
  args.losses[row] = args.targets[row] < 0 ? 0.0F : logf(all.sum) + (all.maximum - chosen);
}

// A cluster of kBlocks blocks for a row; pack p of a thread is the p-th of the threads of all
// blocks beside each other.
template <class S, int kBlocks, int kPacks>
__global__ void __cluster_dims__(kBlocks) __launch_bounds__(kThreads, kPacks > 8 ? 2 : 4)
    cluster_kernel(const Logits args) {
  using Data = Access<float, true>;
  __shared__ Exponentials of_block;
  const auto cluster = cooperative_groups::this_cluster();
  const std::int64_t row = blockIdx.x / kBlocks;
  const int rank = static_cast<int>(blockIdx.x) % kBlocks;
  float* logits = args.logits + row * args.vocabulary;
  const std::int32_t target = args.targets[row];
  const int count = static_cast<int>(args.vocabulary);
  const int first = (rank * kThreads + static_cast<int>(threadIdx.x)) * Data::kSize;
  constexpr int kStep = kBlocks * kThreads * Data::kSize;
  float values[kPacks][Data::kSize];
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
#pragma unroll
    for (int i = 0; i < Data::kSize; ++i) values[p][i] = kLowest;
    if (first + p * kStep < count) Data::unpack(Data::load(logits + first + p * kStep), values[p]);
  }
  const float chosen = target < 0 ? 0.0F : logits[target];
  Exponentials mine{kLowest, 0};
  add(mine, values);
  Exponentials all = merge_block(mine);
  if constexpr (kBlocks > 1) {
    if (threadIdx.x == 0) of_block = all;
    cluster.sync();
    all = *cluster.map_shared_rank(&of_block, 0);
    for (int block = 1; block < kBlocks; ++block)
      all = merge(all, *cluster.map_shared_rank(&of_block, block));
  } else {
    __syncthreads();  // thread 0 has read the chosen logit
  }
  if (rank == 0 && threadIdx.x == 0) store_loss(args, row, chosen, all);
  if (args.scale != nullptr) {
    const Gradient gradient(args, all, target);
    S* to = reinterpret_cast<S*>(logits);
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int column = first + p * kStep;
      if (column >= count) break;
#pragma unroll
      for (int i = 0; i < Data::kSize; ++i) values[p][i] = gradient(values[p][i], column + i);
      store<S>(to + column, values[p]);
    }
  }
  if constexpr (kBlocks > 1) cluster.sync();  // of_block is read until here
}

// One block for a row, of any length.
template <class S, bool kPacked>
__global__ void __launch_bounds__(kThreads) block_kernel(const Logits args) {
  using Data = Access<float, kPacked>;
  constexpr int kUnroll = 4, kStep = kThreads * kUnroll * Data::kSize;
  const std::int64_t row = blockIdx.x, count = args.vocabulary;
  float* logits = args.logits + row * count;
  const std::int32_t target = args.targets[row];
  const float chosen = target < 0 ? 0.0F : logits[target];
  const auto load = [&](std::int64_t step, float(&values)[kUnroll][Data::kSize]) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t column =
          step + (u * kThreads + static_cast<int>(threadIdx.x)) * Data::kSize;
#pragma unroll
      for (int i = 0; i < Data::kSize; ++i) values[u][i] = kLowest;
      if (column < count) Data::unpack(Data::load(logits + column), values[u]);
    }
  };
  Exponentials mine{kLowest, 0};
  for (std::int64_t step = 0; step < count; step += kStep) {
    float values[kUnroll][Data::kSize];
    load(step, values);
    add(mine, values);
  }
  const Exponentials all = merge_block(mine);
  if (threadIdx.x == 0) store_loss(args, row, chosen, all);
  if (args.scale == nullptr) return;
  const Gradient gradient(args, all, target);
  S* to = reinterpret_cast<S*>(logits);
  for (std::int64_t step = 0; step < count; step += kStep) {
    float values[kUnroll][Data::kSize];
    load(step, values);
    __syncthreads();
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t column =
          step + (u * kThreads + static_cast<int>(threadIdx.x)) * Data::kSize;
      if (column >= count) break;
#pragma unroll
      for (int i = 0; i < Data::kSize; ++i) values[u][i] = gradient(values[u][i], column + i);
      store<S>(to + column, values[u]);
    }
  }
}

template <class S, int kBlocks, int kPacks>
void start_clusters(const Logits& args, cudaStream_t stream) {
  cluster_kernel<S, kBlocks, kPacks>
      <<<static_cast<unsigned>(args.rows * kBlocks), kThreads, 0, stream>>>(args);
}

}  // namespace

template <class S>
int launch(const Logits& args, void* handle) {
  if (args.rows == 0) return cudaSuccess;
  const auto stream = static_cast<cudaStream_t>(handle);
  const auto rows = static_cast<unsigned>(args.rows);
  constexpr std::int64_t kLogitsOfBlock = kThreads * 8 * device::kPackSize<float>;
  if (!device::whole_packs<float>({args.vocabulary}, {args.logits}))
    block_kernel<S, false><<<rows, kThreads, 0, stream>>>(args);
  else if (args.vocabulary <= kLogitsOfBlock)
    start_clusters<S, 1, 8>(args, stream);
  else if (args.vocabulary <= 2 * kLogitsOfBlock)
    start_clusters<S, 2, 8>(args, stream);
  else if (args.vocabulary <= 4 * kLogitsOfBlock)
    start_clusters<S, 4, 8>(args, stream);
  else if (args.vocabulary <= 8 * kLogitsOfBlock)
    start_clusters<S, 8, 8>(args, stream);
  else if (args.vocabulary <= 16 * kLogitsOfBlock)
    start_clusters<S, 8, 16>(args, stream);
  else
    block_kernel<S, true><<<rows, kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

template int launch<float>(const Logits&, void*);
template int launch<Bf16>(const Logits&, void*);

}  // namespace stowage::kernels::cross_entropy
