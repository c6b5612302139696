// The norm of all gradients, in the order of norm_block.hpp: norm = sqrt(sum_i g_i^2).
//
// sum_squares: the table of pieces is a kernel argument, as adamw's. A warp finds its piece by
// bisection and sums the squares of one block of 2048 elements in fp64: a lane has four of the 128
// terms, which are neighbours, so it reads 16 bytes at a time, up to eight of them in flight; then
// a butterfly. A block off 16 bytes or of fewer elements adds the same terms one by one.
// finish: a cluster of 8 thread blocks of 1024 threads has the 8192 terms of the sum over slots, a
// thread one of them, with eight loads in flight; a million slots are 8 MiB, too many for one
// multiprocessor. The first block adds the sums of all eight out of their shared memory.
// fp64 costs nothing here: one fused multiply-add for 4 bytes, a twentieth of the chip's rate. The
// square of an fp32 value is exact in fp64, so fusing changes no bit.
// Cost: 4 bytes an element, 2 of bf16, 8 a slot.

#include <algorithm>
#include <cmath>

#include "kernels/hopper/cluster.cuh"
#include "kernels/optimizer/global_norm_launch.hpp"
#include "kernels/optimizer/streams.cuh"
#include "kernels/pack.cuh"

namespace stowage::kernels::optimizer {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;  ///< blocks of elements that a thread block sums
constexpr int kLoads = 8;              ///< in flight of a thread

constexpr int kFinishThreads = 1024;
constexpr int kFinishBlocks = kSlotTerms / kFinishThreads;

static_assert(kNormLanes == 32 && kNormBlock % (kLoads * kNormTerms) == 0);
static_assert(kSlotFold == 32 && kFinishThreads == 32 * 32 && kFinishBlocks == 8);

template <class G>
struct Entry {
  const G* gradient;
  std::int64_t elements;
  std::int64_t slot;
  std::uint32_t first_block;
  bool aligned;  ///< the address allows 16-byte accesses
  std::int64_t out_begin, out_end;
};

/// A kernel's arguments may take 32764 bytes.
constexpr int kEntries = 680;
template <class G>
struct Table {
  double* partials;
  std::uint32_t blocks;
  int count;
  Entry<G> entries[kEntries];
};
static_assert(sizeof(Table<float>) <= 32764);

/// The sum over a warp in the order of fold_halves(), in all lanes.
__device__ __forceinline__ double warp_sum(double value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    value += __shfl_xor_sync(0xffffffffU, value, distance);
  return value;
}

__device__ __forceinline__ void add_square(double& term, float value) {
  term = fma(static_cast<double>(value), static_cast<double>(value), term);
}

template <class G>
__device__ __forceinline__ void add_whole_block(const G* gradient, int lane, double terms[4]) {
#pragma unroll
  for (int pass = 0; pass < kNormBlock / kNormTerms; pass += kLoads) {
    float4 values[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
      values[i] = device::load4(gradient + 4 * ((pass + i) * kNormLanes + lane));
#pragma unroll
    for (const float4& value : values) {
      add_square(terms[0], value.x);
      add_square(terms[1], value.y);
      add_square(terms[2], value.z);
      add_square(terms[3], value.w);
    }
  }
}

/// @param out_begin, out_end of elements that count as 0
template <class G>
__device__ __forceinline__ void add_elements(const G* gradient, std::int64_t count, int lane,
                                             std::int64_t out_begin, std::int64_t out_end,
                                             double terms[4]) {
  for (std::int64_t first = 4 * lane; first < count; first += kNormTerms)
    for (int i = 0; i < 4; ++i) {
      const std::int64_t at = first + i;
      if (at < count && (at < out_begin || at >= out_end))
        add_square(terms[i], device::to_float(gradient[at]));
    }
}

template <class G>
__global__ void __launch_bounds__(kThreads) sum_squares(const __grid_constant__ Table<G> table) {
  const std::uint32_t block = blockIdx.x * kWarps + threadIdx.x / 32;
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (block >= table.blocks) return;
  int low = 0, high = table.count;  // entries before low begin at or before this block
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (table.entries[middle].first_block <= block ? low : high) = middle;
  }
  const Entry<G>& entry = table.entries[low];
  const std::int64_t index = block - entry.first_block;
  const std::int64_t begin = index * kNormBlock;
  const G* gradient = entry.gradient + begin;
  const std::int64_t count = min(kNormBlock, entry.elements - begin);
  const bool counts = entry.out_end <= begin || entry.out_begin >= begin + count;
  double terms[4] = {};
  if (entry.aligned && count == kNormBlock && counts) {
    add_whole_block(gradient, lane, terms);
  } else {
    add_elements(gradient, count, lane, entry.out_begin - begin, entry.out_end - begin, terms);
  }
  const double sum = warp_sum((terms[0] + terms[1]) + (terms[2] + terms[3]));
  if (lane == 0) table.partials[entry.slot + index] = sum;
}

__global__ void __cluster_dims__(kFinishBlocks) __launch_bounds__(kFinishThreads)
    finish(const double* __restrict__ partials, std::int64_t slots, float* __restrict__ norm,
           std::int32_t* __restrict__ step_ok) {
  __shared__ double warps[32];
  __shared__ double total;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  double term = 0;
  for (std::int64_t i = blockIdx.x * kFinishThreads + threadIdx.x; i < slots;
       i += kLoads * kSlotTerms) {
    double values[kLoads];
#pragma unroll
    for (int j = 0; j < kLoads; ++j)
      values[j] = i + j * kSlotTerms < slots ? partials[i + j * kSlotTerms] : 0;
#pragma unroll
    for (const double value : values) term += value;
  }
  term = warp_sum(term);
  if (lane == 0) warps[warp] = term;
  __syncthreads();
  if (warp == 0) {
    const double sum = warp_sum(warps[lane]);
    if (lane == 0) total = sum;
  }
  hopper::cluster_arrive();
  hopper::cluster_wait();
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    double sums[kFinishBlocks];
    for (int block = 0; block < kFinishBlocks; ++block)
      sums[block] = hopper::ld_shared_cluster(&total, block);
#pragma unroll
    for (int width = kFinishBlocks / 2; width > 0; width /= 2)
      for (int i = 0; i < width; ++i) sums[i] += sums[i + width];
    const auto result = static_cast<float>(std::sqrt(sums[0]));
    *norm = result;
    if (!isfinite(result)) *step_ok = 0;
  }
  __syncwarp();
  // No block ends, and with it its shared memory, before the first one has read it.
  hopper::cluster_arrive();
  hopper::cluster_wait();
}

}  // namespace

template <class G>
int launch_norm_partials(std::span<const NormPointers<G>> pieces, double* partials, void* stream) {
  for (std::size_t first = 0; first < pieces.size(); first += kEntries) {
    Table<G> table{.partials = partials, .blocks = 0, .count = 0, .entries = {}};
    for (const NormPointers<G>& piece :
         pieces.subspan(first, std::min<std::size_t>(kEntries, pieces.size() - first))) {
      if (piece.elements == 0) continue;
      table.entries[table.count++] = {
          piece.gradient,
          piece.elements,
          piece.slot,
          table.blocks,
          reinterpret_cast<std::uintptr_t>(piece.gradient) % sizeof(float4) == 0,
          piece.out_begin,
          piece.out_end};
      table.blocks += static_cast<std::uint32_t>(norm_blocks(piece.elements));
    }
    if (table.blocks == 0) continue;
    const std::uint32_t grid = (table.blocks + kWarps - 1) / kWarps;
    sum_squares<<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(table);
    if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

template int launch_norm_partials(std::span<const NormPointers<float>>, double*, void*);
template int launch_norm_partials(std::span<const NormPointers<execution::Bf16>>, double*, void*);

int launch_norm_finish(std::span<const double> partials, float* norm, std::int32_t* step_ok,
                       void* stream) {
  finish<<<kFinishBlocks, kFinishThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      partials.data(), static_cast<std::int64_t>(partials.size()), norm, step_ok);
  return cudaGetLastError();
}

}  // namespace stowage::kernels::optimizer
