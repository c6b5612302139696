// The sum of the losses of the counted tokens, and their number, of all and of each source; see
// loss_sum.hpp and source_losses.hpp.
//
// One block, or one for each source: a few hundred KiB at most. Thread i adds tokens i, i + 1024,
// ... in order, then the lanes of a warp by a butterfly, then the warps in order.

#include <cuda_runtime.h>

#include "kernels/cross_entropy/softmax_launch.hpp"
#include "kernels/hopper/warp.cuh"

namespace stowage::kernels::cross_entropy {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarpSize = 32;
constexpr int kWarps = kThreads / kWarpSize;

/// @param counted whether a token is
template <class Counted>
__device__ __forceinline__ void sum_counted(std::int64_t tokens, const float* losses,
                                            const Counted& counted, float* sums, bool accumulate) {
  __shared__ float losses_of_warps[kWarps];
  __shared__ int counts_of_warps[kWarps];
  float sum = 0;
  int count = 0;
#pragma unroll 8
  for (std::int64_t t = threadIdx.x; t < tokens; t += kThreads) {
    const bool counts = counted(t);
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

__global__ void __launch_bounds__(kThreads)
    loss_sum_kernel(std::int64_t tokens, const float* losses, const std::int32_t* targets,
                    float* sums, bool accumulate) {
  sum_counted(
      tokens, losses, [=](std::int64_t t) { return targets[t] >= 0; }, sums, accumulate);
}

__global__ void __launch_bounds__(kThreads)
    source_losses_kernel(std::int64_t tokens, const float* losses, const std::int32_t* of,
                         float* sums, bool accumulate) {
  const auto source = static_cast<std::int32_t>(blockIdx.x);
  sum_counted(
      tokens, losses, [=](std::int64_t t) { return of[t] == source; }, sums + 2 * source,
      accumulate);
}

}  // namespace

int launch_loss_sum(std::int64_t tokens, const float* losses, const std::int32_t* targets,
                    float* sums, bool accumulate, void* stream) {
  loss_sum_kernel<<<1, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(tokens, losses, targets,
                                                                         sums, accumulate);
  return cudaGetLastError();
}

int launch_source_losses(std::int64_t tokens, std::int64_t sources, const float* losses,
                         const std::int32_t* of, float* sums, bool accumulate, void* stream) {
  source_losses_kernel<<<static_cast<unsigned>(sources), kThreads, 0,
                         static_cast<cudaStream_t>(stream)>>>(tokens, losses, of, sums, accumulate);
  return cudaGetLastError();
}

}  // namespace stowage::kernels::cross_entropy
