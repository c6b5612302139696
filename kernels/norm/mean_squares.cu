// The sum of the mean squares of rows, from their rstd; see mean_squares.hpp.
//
// One block: some hundred KiB at most. Thread i adds rows i, i + 1024, ... in order, then the lanes
// of a warp by a butterfly, then the warps in order.

#include <cuda_runtime.h>

#include "kernels/hopper/warp.cuh"
#include "kernels/norm/norm_launch.hpp"

namespace stowage::kernels::norm {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarpSize = 32;
constexpr int kWarps = kThreads / kWarpSize;

__global__ void __launch_bounds__(kThreads)
    mean_squares_kernel(std::int64_t rows, const float* rstd, float eps, float* total) {
  __shared__ float of_warps[kWarps];
  float sum = 0;
#pragma unroll 8
  for (std::int64_t r = threadIdx.x; r < rows; r += kThreads) {
    const float mean = 1 / (rstd[r] * rstd[r]) - eps;
    sum += mean < 0 ? 0.0F : mean;  // NaN stays
  }
  sum = hopper::lanes_sum<kWarpSize>(sum);
  if (threadIdx.x % kWarpSize == 0) of_warps[threadIdx.x / kWarpSize] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int warp = 1; warp < kWarps; ++warp) sum += of_warps[warp];
  *total += sum;
}

}  // namespace

int launch_mean_squares(std::int64_t rows, const float* rstd, float eps, float* total,
                        void* stream) {
  mean_squares_kernel<<<1, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(rows, rstd, eps,
                                                                             total);
  return cudaGetLastError();
}

}  // namespace stowage::kernels::norm
