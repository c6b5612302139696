// Balancing of experts: counts of a step, and one step of the selection bias (arXiv 2408.15664).
//
// A few hundred numbers, one block: its time is that of the launch. The sum over the experts is a
// strided sum a lane and a butterfly, by every warp for itself; counts below 2^24 add exactly.

#include "kernels/hopper/warp.cuh"
#include "kernels/moe/balance.hpp"

#include <cuda_runtime.h>

namespace stowage::kernels::moe {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    count_load(int experts, const std::int32_t* __restrict__ offsets, float* __restrict__ load,
               bool accumulate) {
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += kThreads)
    load[e] = static_cast<float>(offsets[e + 1] - offsets[e]) + (accumulate ? load[e] : 0.0F);
}

__global__ void __launch_bounds__(kThreads)
    update_bias(int experts, const float* __restrict__ load, float* __restrict__ bias, float rate,
                const std::int32_t* __restrict__ step_ok) {
  if (*step_ok == 0) return;
  float total = 0;
  for (int e = static_cast<int>(threadIdx.x % 32); e < experts; e += 32) total += load[e];
  const float mean = hopper::lanes_sum<32>(total) / static_cast<float>(experts);
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += kThreads)
    bias[e] += rate * static_cast<float>((load[e] < mean) - (load[e] > mean));
}

}  // namespace

}  // namespace stowage::kernels::moe

namespace stowage::kernels {

template <class S>
int ExpertLoad::launch(const Operands<Pointers<S>>& o, void* stream) const {
  moe::count_load<<<1, moe::kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<int>(experts), o.offsets, o.load, accumulate);
  return cudaGetLastError();
}

template <class S>
int ExpertBiasUpdate::launch(const Operands<Pointers<S>>& o, void* stream) const {
  moe::update_bias<<<1, moe::kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<int>(experts), o.load, o.bias, static_cast<float>(rate), o.step_ok);
  return cudaGetLastError();
}

template int ExpertLoad::launch(const Operands<Pointers<float>>&, void*) const;
template int ExpertLoad::launch(const Operands<Pointers<execution::Bf16>>&, void*) const;
template int ExpertBiasUpdate::launch(const Operands<Pointers<float>>&, void*) const;
template int ExpertBiasUpdate::launch(const Operands<Pointers<execution::Bf16>>&, void*) const;

}  // namespace stowage::kernels
