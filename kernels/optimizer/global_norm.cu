// The norm of all gradients, in a fixed order: norm = sqrt(sum_i g_i^2).
//
// The table of pieces is a kernel argument, as adamw's. A warp sums the squares of one block of 2048
// elements of one gradient in fp64; it finds its piece by bisection. Lane l adds element 4 (32 p + l)
// + c of the block to its c-th sum for p = 0, 1, ..., then adds its four sums and meets the others in
// a butterfly: elements keep their lane and turn whatever is missing behind them and however the
// address is aligned, so a block's bits do not depend on the piece that it comes in. The partial sums
// are added in chunks of 4096 by one block of threads each, and the chunks by one more.
// fp64 costs nothing here: one fused multiply-add for 4 bytes, a twentieth of the chip's rate.
// Cost: 4 bytes an element, 8 loads of 16 bytes in flight a lane.

#include <algorithm>
#include <cmath>

#include "kernels/optimizer/global_norm_launch.hpp"

namespace stowage::kernels::optimizer {
namespace {

constexpr int kWarp = 32;
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;  ///< and norm blocks of a block of threads
constexpr int kVector = 4;
constexpr int kLoads = 8;  ///< in flight of a lane
constexpr int kTurns = kNormBlock / (kWarp * kVector);
static_assert(kTurns % kLoads == 0);
constexpr int kChunkThreads = 512;

struct Entry {
  const float* gradient;
  double* partials;
  std::int64_t elements;
  std::uint32_t first_block;  ///< in this launch
  bool aligned;               ///< the address allows 16-byte accesses
};

/// A kernel's arguments may take 32764 bytes.
constexpr int kEntries = 1000;
struct Table {
  std::uint32_t blocks;
  int count;
  Entry entries[kEntries];
};
static_assert(sizeof(Table) <= 32764);

__device__ __forceinline__ double square(float value) {
  return static_cast<double>(value) * static_cast<double>(value);
}

/// The sum over a warp, in every lane.
__device__ __forceinline__ double warp_sum(double value) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    value += __shfl_xor_sync(0xffffffffU, value, distance);
  return value;
}

/// The sum over a block of threads, in thread 0.
__device__ __forceinline__ double block_sum(double value) {
  __shared__ double warps[kChunkThreads / kWarp];
  value = warp_sum(value);
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  double sum = 0;
  if (threadIdx.x == 0)
    for (const double warp : warps) sum += warp;
  return sum;
}

__device__ __forceinline__ double whole_block(const float* gradient, int lane) {
  const auto* vectors = reinterpret_cast<const float4*>(gradient);
  double sums[kVector] = {};
#pragma unroll
  for (int turn = 0; turn < kTurns; turn += kLoads) {
    float4 values[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) values[i] = __ldcs(vectors + (turn + i) * kWarp + lane);
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

__device__ double ragged_block(const float* gradient, std::int64_t elements, int lane) {
  double sums[kVector] = {};
  for (int turn = 0; turn < kTurns; ++turn)
#pragma unroll
    for (int c = 0; c < kVector; ++c)
      if (const int i = (turn * kWarp + lane) * kVector + c; i < elements)
        sums[c] += square(gradient[i]);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

__global__ void __launch_bounds__(kThreads) sum_squares(const __grid_constant__ Table table) {
  const std::uint32_t block = blockIdx.x * kWarps + threadIdx.x / kWarp;
  if (block >= table.blocks) return;
  int low = 0, high = table.count;  // entries before low begin at or before this block
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (table.entries[middle].first_block <= block ? low : high) = middle;
  }
  const Entry& entry = table.entries[low];
  const std::int64_t index = block - entry.first_block;
  const std::int64_t begin = kNormBlock * index;
  const int lane = threadIdx.x % kWarp;
  const double sum =
      warp_sum(entry.aligned && begin + kNormBlock <= entry.elements
                   ? whole_block(entry.gradient + begin, lane)
                   : ragged_block(entry.gradient + begin, entry.elements - begin, lane));
  if (lane == 0) entry.partials[index] = sum;
}

/// What a thread adds of values[0, count): every kChunkThreads-th.
__device__ __forceinline__ double strided_sum(const double* __restrict__ values,
                                              std::int64_t count) {
  double sums[kLoads] = {};
  for (std::int64_t i = threadIdx.x; i < count; i += kChunkThreads * kLoads) {
#pragma unroll
    for (int j = 0; j < kLoads; ++j)
      if (i + j * kChunkThreads < count) sums[j] += values[i + j * kChunkThreads];
  }
  double sum = 0;
#pragma unroll
  for (const double term : sums) sum += term;
  return sum;
}

__global__ void __launch_bounds__(kChunkThreads)
    sum_chunk(const double* __restrict__ partials, std::int64_t count,
              double* __restrict__ chunks) {
  const std::int64_t begin = kNormChunk * blockIdx.x;
  const double sum = block_sum(strided_sum(partials + begin, min(kNormChunk, count - begin)));
  if (threadIdx.x == 0) chunks[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kChunkThreads)
    finish(const double* __restrict__ chunks, std::int64_t count, float* __restrict__ norm,
           std::int32_t* __restrict__ step_ok) {
  const double sum = block_sum(strided_sum(chunks, count));
  if (threadIdx.x != 0) return;
  const auto result = static_cast<float>(std::sqrt(sum));
  *norm = result;
  if (!isfinite(result)) *step_ok = 0;
}

}  // namespace

int launch_norm_partials(std::span<const NormPointers<float>> pieces, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  for (std::size_t first = 0; first < pieces.size(); first += kEntries) {
    Table table{.blocks = 0, .count = 0, .entries = {}};
    for (const NormPointers<float>& piece :
         pieces.subspan(first, std::min<std::size_t>(kEntries, pieces.size() - first))) {
      table.entries[table.count++] = {
          piece.gradient, piece.partials, piece.elements, table.blocks,
          reinterpret_cast<std::uintptr_t>(piece.gradient) % sizeof(float4) == 0};
      table.blocks += static_cast<std::uint32_t>(norm_blocks(piece.elements));
    }
    sum_squares<<<(table.blocks + kWarps - 1) / kWarps, kThreads, 0, on>>>(table);
    if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

int launch_norm_finish(const double* partials, std::int64_t blocks, float* norm,
                       std::int32_t* step_ok, double* chunks, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  const auto count = static_cast<unsigned>(norm_chunks(blocks));
  if (count > 0) sum_chunk<<<count, kChunkThreads, 0, on>>>(partials, blocks, chunks);
  finish<<<1, kChunkThreads, 0, on>>>(chunks, count, norm, step_ok);
  return cudaGetLastError();
}

}  // namespace stowage::kernels::optimizer
