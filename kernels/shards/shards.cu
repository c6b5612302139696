// Device code of the operators of shards.hpp: one thread an element, and the count of experts by
// one block, whose integer sums need no order.

#include "execution/parallel_for.cuh"
#include "kernels/shards/shards_element.hpp"
#include "kernels/shards/shards_launch.hpp"

STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::kernels::detail::Localise);
STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::kernels::detail::PairValues<float>);
STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::kernels::detail::PairValues<double>);
STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::kernels::detail::PairRows);

namespace stowage::kernels::shards {
namespace {

constexpr int kThreads = 1024;

__global__ void __launch_bounds__(kThreads)
    count_experts(std::int64_t pairs, int experts, const std::int32_t* __restrict__ indices,
                  std::int32_t* __restrict__ offsets) {
  __shared__ int counts[kMostExperts];
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kMostExperts) counts[thread] = 0;
  __syncthreads();
#pragma unroll 8
  for (std::int64_t i = thread; i < pairs; i += kThreads)
    if (indices[i] >= 0) atomicAdd(counts + indices[i], 1);
  __syncthreads();
  if (thread != 0) return;
  int below = 0;
  for (int e = 0; e < experts; ++e) {
    offsets[e] = below;
    below += counts[e];
  }
  offsets[experts] = below;
}

}  // namespace

int launch_expert_offsets(std::int64_t pairs, std::int64_t experts, const std::int32_t* indices,
                          std::int32_t* offsets, void* stream) {
  count_experts<<<1, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      pairs, static_cast<int>(experts), indices, offsets);
  return cudaGetLastError();
}

}  // namespace stowage::kernels::shards
