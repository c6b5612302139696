// Splits fp32 values into three bf16 values and joins three fp32 sums: what a product of an fp32
// matrix with a bf16 matrix needs on tensor cores. high = bf16(v), middle = bf16(v - high), low =
// bf16(v - high - middle): both differences are exact in fp32, and what is left after three
// roundings is below 2^-24 of v. Small matrices, so one thread per element and plain loads.

#include <cuda_bf16.h>

#include "kernels/linear/mixed_launch.hpp"

namespace stowage::kernels::mixed {
namespace {

constexpr int kThreads = 256;

unsigned blocks(std::int64_t count) {
  return static_cast<unsigned>((count + kThreads - 1) / kThreads);
}

__global__ void split_kernel(std::int64_t count, std::int64_t columns, const float* values,
                             __nv_bfloat16* parts) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const std::int64_t row = i / columns;
  __nv_bfloat16* out = parts + row * columns * (kParts - 1) + i;  // row * 3 columns + column
  float rest = values[i];
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const __nv_bfloat16 rounded = __float2bfloat16_rn(rest);
    out[part * columns] = rounded;
    rest -= __bfloat162float(rounded);
  }
}

__global__ void join_kernel(std::int64_t count, const float* parts, float* sum, bool accumulate) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  // Small parts first, so that the largest is rounded once.
  const float joined = parts[i] + (parts[i + count] + parts[i + 2 * count]);
  sum[i] = accumulate ? sum[i] + joined : joined;
}

}  // namespace

cudaError_t launch_split(std::int64_t rows, std::int64_t columns, const float* values,
                         std::uint16_t* parts, cudaStream_t stream) {
  const std::int64_t count = rows * columns;
  if (count == 0) return cudaSuccess;
  split_kernel<<<blocks(count), kThreads, 0, stream>>>(count, columns, values,
                                                       reinterpret_cast<__nv_bfloat16*>(parts));
  return cudaGetLastError();
}

cudaError_t launch_join(std::int64_t count, const float* parts, float* sum, bool accumulate,
                        cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  join_kernel<<<blocks(count), kThreads, 0, stream>>>(count, parts, sum, accumulate);
  return cudaGetLastError();
}

}  // namespace stowage::kernels::mixed
