// The norm of all gradients, in a fixed order: norm = sqrt(sum_i g_i^2).
//
// The table of gradients is a kernel argument, as adamw's. A block of threads sums the squares of
// one block of 16384 elements of one gradient in fp64, which finds its tensor by bisection: a
// thread every 1024th four elements, then a butterfly, then the warps in order. One block adds all
// partial sums in order of index modulo its threads. Whatever runs first, every sum has the same
// terms in the same order.
// fp64 costs nothing here: one fused multiply-add for 4 bytes, a twentieth of the chip's rate.
// Cost: 4 bytes an element. Next: the partial sums of a bucket right behind its reduction.

#include <algorithm>
#include <cmath>

#include "kernels/optimizer/global_norm_launch.hpp"
#include "kernels/optimizer/norm_block.hpp"

namespace stowage::kernels::optimizer {
namespace {

constexpr int kThreads = 256;
constexpr int kVector = 4;
constexpr int kLoads = 8;  ///< in flight of a thread
constexpr int kFinalThreads = 1024;

struct Entry {
  const float* gradient;
  std::int64_t elements;
  std::uint32_t first_block;
  bool aligned;  ///< the address allows 16-byte accesses
};

/// A kernel's arguments may take 32764 bytes.
constexpr int kEntries = 1300;
struct Table {
  double* partials;
  std::uint32_t blocks;
  int count;
  Entry entries[kEntries];
};
static_assert(sizeof(Table) <= 32764);

/// The sum over a block of threads, in thread 0.
template <int kCount>
__device__ __forceinline__ double block_sum(double value) {
  __shared__ double warps[kCount / 32];
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    value += __shfl_xor_sync(0xffffffffU, value, distance);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  double sum = 0;
  if (threadIdx.x == 0)
    for (const double warp : warps) sum += warp;
  return sum;
}

__device__ __forceinline__ double square(float value) {
  return static_cast<double>(value) * static_cast<double>(value);
}

__device__ __forceinline__ double sum_whole_block(const float* gradient) {
  const auto* vectors = reinterpret_cast<const float4*>(gradient);
  double sums[kVector] = {};
#pragma unroll
  for (int pass = 0; pass < kNormBlock / (kThreads * kVector); pass += kLoads) {
    float4 values[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
      values[i] = __ldcs(vectors + (pass + i) * kThreads + threadIdx.x);
#pragma unroll
    for (const float4& value : values) {
      sums[0] += square(value.x);
      sums[1] += square(value.y);
      sums[2] += square(value.z);
      sums[3] += square(value.w);
    }
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

__global__ void __launch_bounds__(kThreads) sum_squares(const __grid_constant__ Table table) {
  int low = 0, high = table.count;  // entries before low begin at or before this block
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (table.entries[middle].first_block <= blockIdx.x ? low : high) = middle;
  }
  const Entry& entry = table.entries[low];
  const std::int64_t begin = kNormBlock * (blockIdx.x - entry.first_block);
  double sum = 0;
  if (entry.aligned && begin + kNormBlock <= entry.elements) {
    sum = sum_whole_block(entry.gradient + begin);
  } else {
    const std::int64_t end = min(begin + kNormBlock, entry.elements);
    for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads)
      sum += square(entry.gradient[i]);
  }
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) table.partials[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kFinalThreads)
    finish(const double* __restrict__ partials, std::int64_t count, float* __restrict__ norm,
           std::int32_t* __restrict__ step_ok) {
  double sums[kLoads] = {};
  for (std::int64_t i = threadIdx.x; i < count; i += kFinalThreads * kLoads) {
#pragma unroll
    for (int j = 0; j < kLoads; ++j)
      if (i + j * kFinalThreads < count) sums[j] += partials[i + j * kFinalThreads];
  }
  double sum = 0;
#pragma unroll
  for (const double term : sums) sum += term;
  sum = block_sum<kFinalThreads>(sum);
  if (threadIdx.x != 0) return;
  const auto result = static_cast<float>(std::sqrt(sum));
  *norm = result;
  if (!isfinite(result)) *step_ok = 0;
}

}  // namespace

int launch_global_norm(std::span<const std::span<const float>> gradients, float* norm,
                       std::int32_t* step_ok, double* partials, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  std::int64_t done = 0;
  for (std::size_t first = 0; first < gradients.size(); first += kEntries) {
    Table table{.partials = partials + done, .blocks = 0, .count = 0, .entries = {}};
    for (const std::span<const float> gradient :
         gradients.subspan(first, std::min<std::size_t>(kEntries, gradients.size() - first))) {
      if (gradient.empty()) continue;
      const auto elements = static_cast<std::int64_t>(gradient.size());
      table.entries[table.count++] = {
          gradient.data(), elements, table.blocks,
          reinterpret_cast<std::uintptr_t>(gradient.data()) % sizeof(float4) == 0};
      table.blocks += static_cast<std::uint32_t>(norm_blocks(elements));
    }
    if (table.blocks == 0) continue;
    sum_squares<<<table.blocks, kThreads, 0, on>>>(table);
    if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess) return status;
    done += table.blocks;
  }
  finish<<<1, kFinalThreads, 0, on>>>(partials, done, norm, step_ok);
  return cudaGetLastError();
}

}  // namespace stowage::kernels::optimizer
