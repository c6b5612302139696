// Device code of the operators of shards.hpp: one thread an element, and the count of experts by
// one block, whose integer sums need no order.

#include "execution/parallel_for.cuh"
#include "kernels/shards/shards.hpp"
#include "kernels/shards/shards_element.hpp"

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
  __shared__ int counts[ExpertOffsets::kMostExperts];
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < ExpertOffsets::kMostExperts) counts[thread] = 0;
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

}  // namespace stowage::kernels::shards

namespace stowage::kernels {

template <class S>
int ExpertOffsets::launch(const Operands<Pointers<S>>& o, void* stream) const {
  require_none(kernels::Operands(kName),
               experts > kMostExperts ? "device code takes up to 1024 experts" : "");
  shards::count_experts<<<1, shards::kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      pairs, static_cast<int>(experts), o.indices, o.offsets);
  return cudaGetLastError();
}
template int ExpertOffsets::launch(const Operands<Pointers<float>>&, void*) const;
template int ExpertOffsets::launch(const Operands<Pointers<execution::Bf16>>&, void*) const;

}  // namespace stowage::kernels
