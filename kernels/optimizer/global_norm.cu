// The norm of all gradients, in the order of norm_block.hpp: norm = sqrt(sum_i g_i^2).
//
// sum_squares: the table of pieces is a kernel argument, as adamw's. A warp finds its piece by
// bisection and sums the squares of one block of 2048 elements in fp64: a lane has four of the 128
// terms, which are neighbours, so it reads 16 bytes at a time, up to eight of them in flight; then
// a butterfly. A block off 16 bytes or of fewer elements adds the same terms one by one.
// With `before` it squares differences in fp32, whose squares are exact in fp64 too, with half as
// many loads of each of both in flight; where the host has not asked, each warp ends at once.
// finish: a cluster of 8 thread blocks of 1024 threads has the 8192 terms of the sum over slots, a
// thread one of them, with eight loads in flight; a million slots are 8 MiB, too many for one
// multiprocessor. The first block adds the sums of all eight out of their shared memory.
// sum_parts: a thread block of 1024 threads for each part of the model.
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

/// What is squared: a gradient.
template <class G>
struct Values {
  static constexpr int kLoads = optimizer::kLoads;  ///< of an array, in flight
  const G* at;

  explicit Values(const NormPointers<G>& piece) : at(piece.gradient) {}
  Values() = default;
  bool aligned() const { return reinterpret_cast<std::uintptr_t>(at) % sizeof(float4) == 0; }
  __device__ __forceinline__ float4 load4(std::int64_t i) const { return device::load4(at + i); }
  __device__ __forceinline__ float operator[](std::int64_t i) const {
    return device::to_float(at[i]);
  }
};

/// What a weight has changed by.
template <class W>
struct Changes {
  static constexpr int kLoads = optimizer::kLoads / 2;
  const W *at, *before;

  explicit Changes(const NormPointers<W>& piece) : at(piece.gradient), before(piece.before) {}
  Changes() = default;
  bool aligned() const {
    return (reinterpret_cast<std::uintptr_t>(at) | reinterpret_cast<std::uintptr_t>(before)) %
               sizeof(float4) ==
           0;
  }
  __device__ __forceinline__ float4 load4(std::int64_t i) const {
    const float4 now = device::load4(at + i), then = device::load4(before + i);
    return {now.x - then.x, now.y - then.y, now.z - then.z, now.w - then.w};
  }
  __device__ __forceinline__ float operator[](std::int64_t i) const {
    return device::to_float(at[i]) - device::to_float(before[i]);
  }
};

constexpr int kFinishThreads = 1024;
constexpr int kFinishBlocks = kSlotTerms / kFinishThreads;

static_assert(kNormLanes == 32 && kNormBlock % (kLoads * kNormTerms) == 0);
static_assert(kSlotFold == 32 && kFinishThreads == 32 * 32 && kFinishBlocks == 8);

template <class Source>
struct Entry {
  Source source;
  std::int64_t elements;
  std::int64_t slot;
  std::uint32_t first_block;
  bool aligned;  ///< the address allows 16-byte accesses
  std::int64_t out_begin, out_end;
};

/// A kernel's arguments may take 32764 bytes.
template <class Source>
constexpr int kEntries = 32640 / sizeof(Entry<Source>);
template <class Source>
struct Table {
  double* partials;
  const std::int32_t* asked;  ///< nothing is written where it is 0; null: always
  std::uint32_t blocks;
  int count;
  Entry<Source> entries[kEntries<Source>];
};
static_assert(sizeof(Table<Values<float>>) <= 32764 && kEntries<Values<float>> == 680 &&
              sizeof(Table<Changes<float>>) <= 32764);

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

template <class Source>
__device__ __forceinline__ void add_whole_block(const Source& source, std::int64_t begin, int lane,
                                                double terms[4]) {
#pragma unroll
  for (int pass = 0; pass < kNormBlock / kNormTerms; pass += Source::kLoads) {
    float4 values[Source::kLoads];
#pragma unroll
    for (int i = 0; i < Source::kLoads; ++i)
      values[i] = source.load4(begin + 4 * ((pass + i) * kNormLanes + lane));
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
template <class Source>
__device__ __forceinline__ void add_elements(const Source& source, std::int64_t begin,
                                             std::int64_t count, int lane, std::int64_t out_begin,
                                             std::int64_t out_end, double terms[4]) {
  for (std::int64_t first = 4 * lane; first < count; first += kNormTerms)
    for (int i = 0; i < 4; ++i) {
      const std::int64_t at = first + i;
      if (at < count && (at < out_begin || at >= out_end)) add_square(terms[i], source[begin + at]);
    }
}

template <class Source>
__global__ void __launch_bounds__(kThreads)
    sum_squares(const __grid_constant__ Table<Source> table) {
  if (table.asked != nullptr && *table.asked == 0) return;
  const std::uint32_t block = blockIdx.x * kWarps + threadIdx.x / 32;
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (block >= table.blocks) return;
  int low = 0, high = table.count;  // entries before low begin at or before this block
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (table.entries[middle].first_block <= block ? low : high) = middle;
  }
  const Entry<Source>& entry = table.entries[low];
  const std::int64_t index = block - entry.first_block;
  const std::int64_t begin = index * kNormBlock;
  const std::int64_t count = min(kNormBlock, entry.elements - begin);
  const bool counts = entry.out_end <= begin || entry.out_begin >= begin + count;
  double terms[4] = {};
  if (entry.aligned && count == kNormBlock && counts) {
    add_whole_block(entry.source, begin, lane, terms);
  } else {
    add_elements(entry.source, begin, count, lane, entry.out_begin - begin, entry.out_end - begin,
                 terms);
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

/// A kernel's arguments may take 32764 bytes.
constexpr int kParts = 2000;
struct Parts {
  const double* partials;
  double* sums;
  execution::Range slots[kParts];
};

/// A block for each part.
__global__ void __launch_bounds__(kPartTerms) sum_parts(const __grid_constant__ Parts parts) {
  __shared__ double warps[32];
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const std::int64_t end = parts.slots[blockIdx.x].end;
  double term = 0;
  for (std::int64_t i = parts.slots[blockIdx.x].begin + threadIdx.x; i < end; i += kPartTerms)
    term += parts.partials[i];
  term = warp_sum(term);
  if (lane == 0) warps[warp] = term;
  __syncthreads();
  if (warp != 0) return;
  const double sum = warp_sum(warps[lane]);
  if (lane == 0) parts.sums[blockIdx.x] = sum;
}

template <class Source, class T>
int launch_partials(std::span<const NormPointers<T>> pieces, const std::int32_t* asked,
                    double* partials, void* stream) {
  constexpr std::size_t kMost = kEntries<Source>;
  for (std::size_t first = 0; first < pieces.size(); first += kMost) {
    Table<Source> table{
        .partials = partials, .asked = asked, .blocks = 0, .count = 0, .entries = {}};
    for (const NormPointers<T>& piece :
         pieces.subspan(first, std::min(kMost, pieces.size() - first))) {
      if (piece.elements == 0) continue;
      const Source source(piece);
      table.entries[table.count++] = {source,           piece.elements,  piece.slot,   table.blocks,
                                      source.aligned(), piece.out_begin, piece.out_end};
      table.blocks += static_cast<std::uint32_t>(norm_blocks(piece.elements));
    }
    if (table.blocks == 0) continue;
    const std::uint32_t grid = (table.blocks + kWarps - 1) / kWarps;
    sum_squares<<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(table);
    if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

}  // namespace

template <class G>
int launch_norm_partials(std::span<const NormPointers<G>> pieces, double* partials, void* stream) {
  return launch_partials<Values<G>>(pieces, nullptr, partials, stream);
}

template <class W>
int launch_change_partials(std::span<const NormPointers<W>> pieces, const std::int32_t* asked,
                           double* partials, void* stream) {
  return launch_partials<Changes<W>>(pieces, asked, partials, stream);
}

template int launch_norm_partials(std::span<const NormPointers<float>>, double*, void*);
template int launch_norm_partials(std::span<const NormPointers<execution::Bf16>>, double*, void*);
template int launch_change_partials(std::span<const NormPointers<float>>, const std::int32_t*,
                                    double*, void*);
template int launch_change_partials(std::span<const NormPointers<execution::Bf16>>,
                                    const std::int32_t*, double*, void*);

int launch_part_sums(std::span<const execution::Range> parts, const double* partials, double* sums,
                     void* stream) {
  for (std::size_t first = 0; first < parts.size(); first += kParts) {
    const std::size_t count = std::min<std::size_t>(kParts, parts.size() - first);
    Parts table{.partials = partials, .sums = sums + first, .slots = {}};
    std::ranges::copy(parts.subspan(first, count), table.slots);
    sum_parts<<<static_cast<unsigned>(count), kPartTerms, 0, static_cast<cudaStream_t>(stream)>>>(
        table);
    if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

int launch_norm_finish(std::span<const double> partials, float* norm, std::int32_t* step_ok,
                       void* stream) {
  finish<<<kFinishBlocks, kFinishThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      partials.data(), static_cast<std::int64_t>(partials.size()), norm, step_ok);
  return cudaGetLastError();
}

}  // namespace stowage::kernels::optimizer
