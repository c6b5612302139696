// A stable counting sort of (token, slot) pairs by expert, in one launch.
//
// Clusters of eight blocks have the pairs in equal parts, their warps in equal runs. A warp counts
// its run by expert in its own row of shared memory: votes on the bits of the expert find the lanes
// with the same one (the match instruction takes a step for each different value), the lowest of
// them adds, and a pair's rank in the run is noted where its row will be. The other clusters' pairs
// are counted by each cluster again, an eighth by each block, which costs less than a second launch
// that would hand the counts on. Then a column's warps are summed in order, the blocks' sums are
// read through the cluster, and a scan over the experts gives the offsets: counts become the first
// row of each run and expert, to which a second walk adds the rank. So rows are in order of token
// and slot, whatever runs first: the only atomics count integers in shared memory. No workspace.
// Cost: 16 to 32 bytes a pair, and 4 more for each cluster, from L2; the time is that of a launch
// and of a few waits for memory. Limits: 1024 experts, 2^30 pairs; beyond 16 clusters (131072
// pairs) a thread has several.

#include <algorithm>

#include "kernels/hopper/cluster.cuh"
#include "kernels/hopper/dependent_launch.cuh"
#include "kernels/hopper/griddepcontrol.cuh"
#include "kernels/moe/permute.hpp"

namespace stowage::kernels::moe {
namespace {

constexpr int kBlocks = 8;
constexpr int kWarps = 32;
constexpr int kThreads = 32 * kWarps;
constexpr int kChunk = kThreads * kBlocks;  ///< pairs of a cluster, one a thread
constexpr int kBatch = 8;                   ///< loads in flight of a lane
constexpr int kMostClusters = 16;

struct Arguments {
  int pairs, experts, room;
  const std::int32_t* indices;
  std::int32_t* offsets;
  std::int32_t* token_row;
  const float* weights;
  float* row_weight;
};

/// The lanes whose value has the same lowest kBits bits.
template <int kBits>
__device__ __forceinline__ unsigned same_lanes(int value) {
  unsigned lanes = 0xffffffffU;
#pragma unroll
  for (int bit = 0; bit < kBits; ++bit) {
    const bool set = (value >> bit & 1) != 0;
    const unsigned votes = __ballot_sync(0xffffffffU, set);
    lanes &= set ? votes : ~votes;
  }
  return lanes;
}

/// Counts the pairs [begin, end) by expert in `counts` (E), and notes each pair's rank among those
/// of its expert in token_row; -1 where there is none.
template <int kBits>
__device__ __forceinline__ void rank_run(const Arguments& args, int begin, int end, int lane,
                                         int* counts) {
  constexpr int kNoExpert = (1 << kBits) - 1;
  for (int base = begin; base < end; base += 32 * kBatch) {
    int experts[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int pair = base + 32 * i + lane;
      experts[i] = pair < end ? args.indices[pair] : -1;
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (base + 32 * i >= end) break;
      const bool routed = experts[i] >= 0;
      const unsigned peers = same_lanes<kBits>(routed ? experts[i] : kNoExpert);
      const unsigned lower = peers & ((1U << lane) - 1);
      const int before = routed ? counts[experts[i]] : 0;
      __syncwarp();
      if (routed && lower == 0) counts[experts[i]] = before + __popc(peers);
      __syncwarp();
      const int pair = base + 32 * i + lane;
      if (pair < end) args.token_row[pair] = routed ? before + __popc(lower) : -1;
    }
  }
}

/// The same for a run of one pair a lane, whose expert is at hand; returns the rank.
template <int kBits>
__device__ __forceinline__ int rank_one(int expert, int lane, int* counts) {
  const unsigned peers = same_lanes<kBits>(expert >= 0 ? expert : (1 << kBits) - 1);
  const unsigned lower = peers & ((1U << lane) - 1);
  if (expert >= 0 && lower == 0) counts[expert] = __popc(peers);
  return __popc(lower);
}

/// Counts the chunks of pairs outside of [own_begin, own_end), this block's thread in each: those
/// before in `before` (E), all in `all` (E). Sums of integers, so that their order is nothing.
__device__ __forceinline__ void count_others(const Arguments& args, int own_begin, int own_end,
                                             int index, int* before, int* all) {
  const int chunks = (args.pairs + kChunk - 1) / kChunk;
  for (int base = 0; base < chunks; base += kBatch) {
    int experts[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int chunk = base + i, pair = chunk * kChunk + index;
      const bool other = chunk < own_begin || chunk >= own_end;
      experts[i] = chunk < chunks && other && pair < args.pairs ? args.indices[pair] : -1;
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i)
      if (experts[i] >= 0) atomicAdd((base + i < own_begin ? before : all) + experts[i], 1);
  }
}

/// Gives a pair its row, if there is room for it.
__device__ __forceinline__ void place(const Arguments& args, int pair, int row, float weight) {
  const bool fits = row < args.room;
  args.token_row[pair] = fits ? row : -1;
  if (fits) args.row_weight[row] = weight;
}

/// A row that nobody has.
__device__ __forceinline__ void clear_weight(const Arguments& args, int row, int routed) {
  if (row >= routed && row < args.room) args.row_weight[row] = 0;
}

/// Adds the first row of its run and expert to each rank. A thread has the pairs it had before.
__device__ __forceinline__ void place_run(const Arguments& args, int begin, int end, int lane,
                                          const int* first_rows, int routed) {
  for (int base = begin + lane; base < end; base += 32 * kBatch) {
    int experts[kBatch], ranks[kBatch];
    float weights[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int pair = base + 32 * i;
      experts[i] = pair < end ? args.indices[pair] : -1;
      ranks[i] = pair < end ? args.token_row[pair] : 0;
      weights[i] = pair < end ? args.weights[pair] : 0.0F;
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int pair = base + 32 * i;
      if (pair < end) clear_weight(args, pair, routed);
      if (experts[i] >= 0) place(args, pair, first_rows[experts[i]] + ranks[i], weights[i]);
    }
  }
}

/// Sum of `value` over the threads before this one.
__device__ __forceinline__ int scan_exclusive(int value, int lane, int warp,
                                              int (&warp_sums)[kWarps]) {
  int sum = value;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int other = __shfl_up_sync(0xffffffffU, sum, distance);
    if (lane >= distance) sum += other;
  }
  if (lane == 31) warp_sums[warp] = sum;
  __syncthreads();
  int before = lane < warp ? warp_sums[lane] : 0;
  before = static_cast<int>(__reduce_add_sync(0xffffffffU, static_cast<unsigned>(before)));
  return before + sum - value;
}

/// Experts are below 2^kBits - 1.
template <int kBits>
__global__ void __cluster_dims__(kBlocks) __launch_bounds__(kThreads)
    sort_pairs(const Arguments args) {
  extern __shared__ int counts[];  // (kWarps, E), then the block's own, before and all, (E) each
  __shared__ int warp_sums[kWarps];
  __shared__ int routed;
  const int experts = args.experts;
  int* own = counts + kWarps * experts;
  int* before = own + experts;
  int* all = before + experts;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int block = static_cast<int>(hopper::cluster_block_rank());
  const int cluster = static_cast<int>(blockIdx.x) / kBlocks;
  const int clusters = static_cast<int>(gridDim.x) / kBlocks;

  for (int i = thread; i < (kWarps + 3) * experts; i += kThreads) counts[i] = 0;
  hopper::griddepcontrol_wait();
  const int grain = kChunk * clusters;
  const int chunks = (args.pairs + grain - 1) / grain;  // of each cluster
  const std::int64_t first =
      std::int64_t{chunks} * cluster * kChunk + std::int64_t{32} * chunks * (block * kWarps + warp);
  const int begin = static_cast<int>(min(first, std::int64_t{args.pairs}));
  const int end = static_cast<int>(min(first + 32 * chunks, std::int64_t{args.pairs}));
  // One pair a thread stays in registers, whose loads are on their way from here.
  const bool single = chunks <= 1, has_pair = single && begin + lane < end;
  const int expert = has_pair ? args.indices[begin + lane] : -1;
  const float weight = has_pair ? args.weights[begin + lane] : 0.0F;
  int rank = 0;
  __syncthreads();
  if (single)
    rank = rank_one<kBits>(expert, lane, counts + warp * experts);
  else
    rank_run<kBits>(args, begin, end, lane, counts + warp * experts);
  count_others(args, chunks * cluster, chunks * (cluster + 1), block * kThreads + thread, before,
               all);
  __syncthreads();

  const bool has_expert = thread < experts;  // one thread for each
  if (has_expert) {
    int sum = 0;
#pragma unroll 8
    for (int w = 0; w < kWarps; ++w) {
      const int count = counts[w * experts + thread];
      counts[w * experts + thread] = sum;
      sum += count;
    }
    own[thread] = sum;
    all[thread] += sum + before[thread];
  }
  __syncwarp();
  hopper::cluster_arrive();
  hopper::cluster_wait();
  int earlier = 0, total = 0;
  if (has_expert) {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const auto rank = static_cast<unsigned>(b);
      const int count = hopper::ld_shared_cluster(own + thread, rank);
      earlier += hopper::ld_shared_cluster(before + thread, rank) + (b < block ? count : 0);
      total += hopper::ld_shared_cluster(all + thread, rank);
    }
  }
  __syncwarp();
  hopper::cluster_arrive();  // matched at the end: no block leaves while its counts are read
  const int offset = scan_exclusive(total, lane, warp, warp_sums);
  if (has_expert) {
#pragma unroll 8
    for (int w = 0; w < kWarps; ++w) counts[w * experts + thread] += offset + earlier;
    if (blockIdx.x == 0) args.offsets[thread] = offset;
    if (thread == experts - 1) routed = offset + total;
  }
  __syncthreads();
  if (blockIdx.x == 0 && thread == 0) args.offsets[experts] = routed;
  if (!single) {
    place_run(args, begin, end, lane, counts + warp * experts, routed);
  } else if (has_pair) {
    const int pair = begin + lane;
    if (expert < 0) args.token_row[pair] = -1;
    if (expert >= 0) place(args, pair, counts[warp * experts + expert] + rank, weight);
    clear_weight(args, pair, routed);
  }
  __syncwarp();
  hopper::cluster_wait();
}

}  // namespace

}  // namespace stowage::kernels::moe

namespace stowage::kernels {

template <class S>
int PermuteIndex::launch(const Operands<Pointers<S>>& o, void* stream) const {
  using namespace moe;
  const auto pairs = static_cast<int>(tokens * topk);
  const auto shared_bytes = static_cast<int>((kWarps + 3) * experts * sizeof(int));
  const int clusters = std::clamp((pairs + kChunk - 1) / kChunk, 1, kMostClusters);
  const auto sort = [&](auto kernel) -> cudaError_t {
    const cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    if (status != cudaSuccess) return status;
    const Arguments args{pairs,
                         static_cast<int>(experts),
                         static_cast<int>(rows),
                         o.indices,
                         o.offsets,
                         o.token_row,
                         o.weights,
                         o.row_weight};
    return hopper::launch_dependent(kernel, static_cast<unsigned>(clusters * kBlocks), kThreads,
                                    static_cast<std::size_t>(shared_bytes),
                                    static_cast<cudaStream_t>(stream), args);
  };
  return experts < 64    ? sort(sort_pairs<6>)
         : experts < 256 ? sort(sort_pairs<8>)
                         : sort(sort_pairs<11>);
}

template int PermuteIndex::launch(const Operands<Pointers<float>>&, void*) const;
template int PermuteIndex::launch(const Operands<Pointers<execution::Bf16>>&, void*) const;

}  // namespace stowage::kernels
