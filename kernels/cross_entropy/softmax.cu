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
#include "kernels/cross_entropy/softmax_row.cuh"

namespace stowage::kernels::cross_entropy {
namespace {

using device::Access;
using execution::Bf16;

// A cluster of kBlocks blocks for a row; pack p of a thread is the p-th of the threads of all
// blocks beside each other.
template <class S, int kBlocks, int kPacks, class Args>
__global__ void __cluster_dims__(kBlocks) __launch_bounds__(kThreads, kPacks > 8 ? 2 : 4)
    cluster_kernel(const Args args) {
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
    const Gradient gradient = gradient_of(args, all, target);
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
template <class S, bool kPacked, class Args>
__global__ void __launch_bounds__(kThreads) block_kernel(const Args args) {
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
  const Gradient gradient = gradient_of(args, all, target);
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

template <class S, int kBlocks, int kPacks, class Args>
void start_clusters(const Args& args, cudaStream_t stream) {
  cluster_kernel<S, kBlocks, kPacks>
      <<<static_cast<unsigned>(args.rows * kBlocks), kThreads, 0, stream>>>(args);
}

}  // namespace

template <class S, class Args>
int launch(const Args& args, void* handle) {
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
template int launch<float>(const WithZLoss<Logits>&, void*);
template int launch<Bf16>(const WithZLoss<Logits>&, void*);

}  // namespace stowage::kernels::cross_entropy
