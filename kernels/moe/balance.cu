// Balancing of experts: counts of a step, and one step of the selection bias (arXiv 2408.15664).
//
// A few hundred numbers, one block: its time is that of the launch. The sum over the experts is a
// strided sum a lane and a butterfly, by every warp for itself; counts below 2^24 add exactly.

#include "kernels/hopper/warp.cuh"
#include "kernels/moe/balance_launch.hpp"

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

int launch_expert_load(std::int64_t experts, const std::int32_t* offsets, float* load,
                       bool accumulate, void* stream) {
  count_load<<<1, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<int>(experts),
                                                                    offsets, load, accumulate);
  return cudaGetLastError();
}

int launch_expert_bias_update(std::int64_t experts, const float* load, float* bias, double rate,
                              const std::int32_t* step_ok, void* stream) {
  update_bias<<<1, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<int>(experts), load, bias, static_cast<float>(rate), step_ok);
  return cudaGetLastError();
}

}  // namespace stowage::kernels::moe
