// Losses and gradients of rows of logits whose columns ranks share; formulas in
// sharded_cross_entropy.hpp.
//
// Bound by memory: a block reads a row for its stats, and once more for its gradient when the stats
// of all ranks are there; they are merged in the order of ranks by every thread. The gradient goes
// where the logits lay, as in softmax.cu: behind a barrier all logits of a step have been read.

#include "kernels/access.cuh"
#include "kernels/cross_entropy/softmax_launch.hpp"
#include "kernels/cross_entropy/softmax_row.cuh"

namespace stowage::kernels::cross_entropy {
namespace {

using device::Access;
using execution::Bf16;

constexpr int kUnroll = 4;

template <bool kPacked>
constexpr int kStepOf = kThreads* kUnroll* Access<float, kPacked>::kSize;

template <bool kPacked>
__device__ __forceinline__ std::int64_t column_of(std::int64_t step, int unrolled) {
  return step +
         (unrolled * kThreads + static_cast<int>(threadIdx.x)) * Access<float, kPacked>::kSize;
}

template <bool kPacked>
__device__ __forceinline__ void load(const float* logits, std::int64_t count, std::int64_t step,
                                     float (&values)[kUnroll][Access<float, kPacked>::kSize]) {
  using Data = Access<float, kPacked>;
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const std::int64_t column = column_of<kPacked>(step, u);
#pragma unroll
    for (int i = 0; i < Data::kSize; ++i) values[u][i] = kLowest;
    if (column < count) Data::unpack(Data::load(logits + column), values[u]);
  }
}

template <bool kPacked>
__global__ void __launch_bounds__(kThreads) stats_kernel(const LogitsPart args) {
  const std::int64_t row = blockIdx.x, count = args.vocabulary;
  const float* logits = args.logits + row * count;
  Exponentials mine{kLowest, 0};
  for (std::int64_t step = 0; step < count; step += kStepOf<kPacked>) {
    float values[kUnroll][Access<float, kPacked>::kSize];
    load<kPacked>(logits, count, step, values);
    add(mine, values);
  }
  const Exponentials all = merge_block(mine);
  if (threadIdx.x != 0) return;
  const std::int64_t target = args.targets[row] - args.first;
  float* stats = args.stats + 3 * row;
  stats[0] = all.maximum;
  stats[1] = all.sum;
  stats[2] = target >= 0 && target < count ? logits[target] : 0.0F;
}

template <class S, bool kPacked, class Args>
__global__ void __launch_bounds__(kThreads) gradient_kernel(const Args args) {
  using Data = Access<float, kPacked>;
  const std::int64_t row = blockIdx.x, count = args.vocabulary;
  float* logits = args.logits + row * count;
  const float* stats = args.stats + 3 * row;
  Exponentials all{stats[0], stats[1]};
  float chosen = stats[2];
  for (int r = 1; r < args.ranks; ++r) {
    stats += 3 * args.rows;
    all = merge(all, {stats[0], stats[1]});
    chosen += stats[2];
  }
  const std::int32_t target = args.targets[row];
  if (threadIdx.x == 0) store_loss(args, row, chosen, all);
  if (args.scale == nullptr) return;
  // A column that no part has where the target lies elsewhere.
  const std::int64_t own = target - args.first;
  const bool has = own >= 0 && own < count;
  const Gradient gradient =
      gradient_of(args, all, target < 0 ? -1 : static_cast<std::int32_t>(has ? own : count));
  S* to = reinterpret_cast<S*>(logits);
  for (std::int64_t step = 0; step < count; step += kStepOf<kPacked>) {
    float values[kUnroll][Data::kSize];
    load<kPacked>(logits, count, step, values);
    __syncthreads();
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t column = column_of<kPacked>(step, u);
      if (column >= count) break;
#pragma unroll
      for (int i = 0; i < Data::kSize; ++i) values[u][i] = gradient(values[u][i], column + i);
      store<S>(to + column, values[u]);
    }
  }
}

bool whole_packs(const LogitsPart& args) {
  return device::whole_packs<float>({args.vocabulary}, {args.logits});
}

}  // namespace

int launch_part_stats(const LogitsPart& args, void* handle) {
  if (args.rows == 0) return cudaSuccess;
  const auto kernel = whole_packs(args) ? stats_kernel<true> : stats_kernel<false>;
  kernel<<<static_cast<unsigned>(args.rows), kThreads, 0, static_cast<cudaStream_t>(handle)>>>(
      args);
  return cudaGetLastError();
}

template <class S, class Args>
int launch_part_gradient(const Args& args, void* handle) {
  if (args.rows == 0) return cudaSuccess;
  const auto kernel =
      whole_packs(args) ? gradient_kernel<S, true, Args> : gradient_kernel<S, false, Args>;
  kernel<<<static_cast<unsigned>(args.rows), kThreads, 0, static_cast<cudaStream_t>(handle)>>>(
      args);
  return cudaGetLastError();
}

template int launch_part_gradient<float>(const LogitsPart&, void*);
template int launch_part_gradient<Bf16>(const LogitsPart&, void*);
template int launch_part_gradient<float>(const WithZLoss<LogitsPart>&, void*);
template int launch_part_gradient<Bf16>(const WithZLoss<LogitsPart>&, void*);

}  // namespace stowage::kernels::cross_entropy
