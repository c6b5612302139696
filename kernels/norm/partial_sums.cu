// sum (width) = the sum of partials (count, width) over the first index, the second stage of every
// sum over rows. A block owns 32 columns: warp w of 32 adds partials w, w + 32, ... in order, and
// the first warp adds the 32 sums in order. Both orders are fixed by `count`. It is launched while
// the kernel that makes the partials still runs, so that its start costs no time.

#include "kernels/hopper/dependent_launch.cuh"
#include "kernels/hopper/griddepcontrol.cuh"
#include "kernels/norm/norm_launch.hpp"

namespace stowage::kernels::norm {
namespace {

constexpr int kColumns = 32;
constexpr int kWarps = 32;

__global__ void __launch_bounds__(kColumns* kWarps)
    partial_sums_kernel(int count, std::int64_t width, const float* __restrict__ partials,
                        float* __restrict__ sum, bool accumulate) {
  __shared__ float sums[kWarps][kColumns];
  const int lane = static_cast<int>(threadIdx.x) % kColumns;
  const int warp = static_cast<int>(threadIdx.x) / kColumns;
  const std::int64_t column = std::int64_t{blockIdx.x} * kColumns + lane;
  float value = 0;
  hopper::griddepcontrol_wait();
  if (column < width) {
#pragma unroll 8
    for (int i = warp; i < count; i += kWarps) value += partials[i * width + column];
  }
  sums[warp][lane] = value;
  __syncthreads();
  if (warp != 0 || column >= width) return;
  value = accumulate ? sum[column] : 0.0F;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) value += sums[i][lane];
  sum[column] = value;
}

}  // namespace

int launch_partial_sums(std::int64_t count, std::int64_t width, const float* partials, float* sum,
                        bool accumulate, void* stream) {
  if (width == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>((width + kColumns - 1) / kColumns);
  return hopper::launch_dependent(partial_sums_kernel, blocks, kColumns * kWarps, 0,
                                  static_cast<cudaStream_t>(stream), static_cast<int>(count), width,
                                  partials, sum, accumulate);
}

}  // namespace stowage::kernels::norm
