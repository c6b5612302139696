// The sum of the losses of the counted tokens, and their number; see loss_sum.hpp.
//
// One block: a few hundred KiB at most. Thread i adds tokens i, i + 1024, ... in order, then the
// lanes of a warp by a butterfly, then the warps in order.

#include <cuda_runtime.h>

#include "kernels/cross_entropy/softmax_launch.hpp"
#include "kernels/hopper/warp.cuh"

namespace stowage::kernels::cross_entropy {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarpSize = 32;
constexpr int kWarps = kThreads / kWarpSize;

__global__ void __launch_bounds__(kThreads)
    loss_sum_kernel(std::int64_t tokens, const float* losses, const std::int32_t* targets,
                    float* sums, bool accumulate) {
  __shared__ float losses_of_warps[kWarps];
  __shared__ int counts_of_warps[kWarps];
  float sum = 0;
  int count = 0;
#pragma unroll 8
  for (std::int64_t t = threadIdx.x; t < tokens; t += kThreads) {
    const bool counts = targets[t] >= 0;
    sum += counts ? losses[t] : 0.0F;
    count += counts ? 1 : 0;
  }
  sum = hopper::lanes_sum<kWarpSize>(sum);
  count = __reduce_add_sync(~0U, count);
  if (threadIdx.x % kWarpSize == 0) {
    losses_of_warps[threadIdx.x / kWarpSize] = sum;
    counts_of_warps[threadIdx.x / kWarpSize] = count;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int warp = 1; warp < kWarps; ++warp) {
    sum += losses_of_warps[warp];
    count += counts_of_warps[warp];
  }
  sums[0] = accumulate ? sums[0] + sum : sum;
  sums[1] = accumulate ? sums[1] + static_cast<float>(count) : static_cast<float>(count);
}

}  // namespace

int launch_loss_sum(std::int64_t tokens, const float* losses, const std::int32_t* targets,
                    float* sums, bool accumulate, void* stream) {
  loss_sum_kernel<<<1, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(tokens, losses, targets,
                                                                         sums, accumulate);
  return cudaGetLastError();
}

}  // namespace stowage::kernels::cross_entropy
