// A stable counting sort of (token, slot) pairs by expert, in two launches.
//
// First one cluster of eight blocks, with the pairs in 256 equal runs, a warp each. A warp counts
// its run by expert in its own row of shared memory: votes on the bits of the expert find the lanes
// with the same one (the match instruction takes a step for each different value), the lowest of
// them adds, and a pair's rank in the run is noted where its row will be. Then a column's warps are
// summed in order, the blocks' sums are read through the cluster, and a scan over the experts gives
// the offsets: counts become the first row of each run and expert, to which a second walk adds the
// rank. So rows are in order of token and slot, whatever runs first; no atomics, no workspace. Then
// all multiprocessors write what belongs to a row: scattered words, for which eight are too few.
// Cost: 36 bytes a pair; the time is that of two launches and of a few passes over shared memory.
// Limits: 1024 experts, 2^30 pairs; eight multiprocessors of one processing cluster must be free at
// once. Next: the counts from router_select, which has the choices in registers.

#include "kernels/hopper/cluster.cuh"
#include "kernels/moe/permute_launch.hpp"

namespace stowage::kernels::moe {
namespace {

constexpr int kBlocks = 8;
constexpr int kWarps = 32;
constexpr int kThreads = 32 * kWarps;
constexpr int kRunGrain = 32 * kWarps * kBlocks;
constexpr int kBatch = 8;  ///< loads in flight of a lane
constexpr int kFillThreads = 256;

struct Arguments {
  int pairs, experts;
  const std::int32_t* indices;
  std::int32_t* offsets;
  std::int32_t* token_row;
};

__device__ __forceinline__ int load_remote(const int* local, unsigned block) {
  int value;
  asm volatile("ld.shared::cluster.s32 %0, [%1];"
               : "=r"(value)
               : "r"(hopper::mapa(local, block))
               : "memory");
  return value;
}

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

/// Adds the first row of its run and expert to each rank. A thread has the pairs it had before.
__device__ __forceinline__ void place_run(const Arguments& args, int begin, int end, int lane,
                                          const int* first_rows) {
  for (int base = begin + lane; base < end; base += 32 * kBatch) {
    int experts[kBatch], ranks[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int pair = base + 32 * i;
      experts[i] = pair < end ? args.indices[pair] : -1;
      ranks[i] = pair < end ? args.token_row[pair] : 0;
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i)
      if (experts[i] >= 0) args.token_row[base + 32 * i] = first_rows[experts[i]] + ranks[i];
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
  extern __shared__ int counts[];  // (kWarps, E), then the block's (E)
  __shared__ int warp_sums[kWarps];
  int* block_counts = counts + kWarps * args.experts;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const unsigned block = hopper::cluster_block_rank();

  for (int i = thread; i < kWarps * args.experts; i += kThreads) counts[i] = 0;
  __syncthreads();
  const std::int64_t run = (std::int64_t{args.pairs} + kRunGrain - 1) / kRunGrain * 32;
  const std::int64_t first = run * (static_cast<int>(block) * kWarps + warp);
  const int begin = static_cast<int>(min(first, std::int64_t{args.pairs}));
  const int end = static_cast<int>(min(first + run, std::int64_t{args.pairs}));
  rank_run<kBits>(args, begin, end, lane, counts + warp * args.experts);
  __syncthreads();

  const bool has_expert = thread < args.experts;  // one thread for each
  if (has_expert) {
    int sum = 0;
#pragma unroll 8
    for (int w = 0; w < kWarps; ++w) {
      const int count = counts[w * args.experts + thread];
      counts[w * args.experts + thread] = sum;
      sum += count;
    }
    block_counts[thread] = sum;
  }
  __syncwarp();
  hopper::cluster_arrive();
  hopper::cluster_wait();
  int before = 0, all = 0;
  for (unsigned b = 0; has_expert && b < kBlocks; ++b) {
    const int count = load_remote(block_counts + thread, b);
    before += b < block ? count : 0;
    all += count;
  }
  __syncwarp();
  hopper::cluster_arrive();  // matched at the end: no block leaves while its counts are read
  const int offset = scan_exclusive(all, lane, warp, warp_sums);
  if (has_expert) {
#pragma unroll 8
    for (int w = 0; w < kWarps; ++w) counts[w * args.experts + thread] += offset + before;
    if (block == 0) args.offsets[thread] = offset;
    if (block == 0 && thread == args.experts - 1) args.offsets[args.experts] = offset + all;
  }
  __syncthreads();
  place_run(args, begin, end, lane, counts + warp * args.experts);
  __syncwarp();
  hopper::cluster_wait();
}

/// What belongs to a row, from the row of each pair; the rows that no pair has.
__global__ void __launch_bounds__(kFillThreads)
    fill_rows(int pairs, const std::int32_t* __restrict__ routed,
              const std::int32_t* __restrict__ token_row, const float* __restrict__ weights,
              float* __restrict__ row_weight) {
  const int i = static_cast<int>(blockIdx.x) * kFillThreads + static_cast<int>(threadIdx.x);
  if (i >= pairs) return;
  const int row = token_row[i];
  if (row >= 0) row_weight[row] = weights[i];
  if (i >= *routed) row_weight[i] = 0;
}

}  // namespace

int launch_permute_index(std::int64_t tokens, std::int64_t topk, std::int64_t experts,
                         const std::int32_t* indices, std::int32_t* offsets,
                         std::int32_t* token_row, float* row_weight, const float* weights,
                         void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  const auto pairs = static_cast<int>(tokens * topk);
  const auto shared_bytes = static_cast<int>((kWarps + 1) * experts * sizeof(int));
  const auto sort = [&](auto kernel) -> cudaError_t {
    const cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    if (status != cudaSuccess) return status;
    kernel<<<kBlocks, kThreads, static_cast<unsigned>(shared_bytes), on>>>(
        {pairs, static_cast<int>(experts), indices, offsets, token_row});
    return cudaGetLastError();
  };
  const cudaError_t status = experts < 64    ? sort(sort_pairs<6>)
                             : experts < 256 ? sort(sort_pairs<8>)
                                             : sort(sort_pairs<11>);
  if (status != cudaSuccess || pairs == 0) return status;
  fill_rows<<<static_cast<unsigned>((pairs + kFillThreads - 1) / kFillThreads), kFillThreads, 0,
              on>>>(pairs, offsets + experts, token_row, weights, row_weight);
  return cudaGetLastError();
}

}  // namespace stowage::kernels::moe
