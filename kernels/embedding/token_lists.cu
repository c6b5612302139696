// The positions of each token of a batch: a counting sort in one launch, and the order of long
// lists in another.
//
// The first is one cluster of blocks, which can wait for each other: count the tokens, give each
// token that occurs a place for its list, and put the positions there. Counts and places come from
// integer atomics, one a warp for the places, so the order within a list, and of the lists, changes
// from run to run. The second puts each list of more than kLongList positions in order: a
// position's rank is the number of smaller ones in its list; who adds a short one orders it. So the
// sums are the same every time, though not where the lists lie. The work of ranking grows with the
// square of a list's length, which for the commonest word of a text is still far below the work of
// adding its rows.

#include <cooperative_groups.h>

#include "kernels/embedding/token_lists.cuh"
#include "kernels/hopper/dependent_launch.cuh"
#include "kernels/hopper/griddepcontrol.cuh"

namespace stowage::kernels::embedding {
namespace {

constexpr int kClusterBlocks = 8;  // what every GPU with clusters can start together
constexpr int kListThreads = 1024;
constexpr int kRankThreads = 256;
constexpr int kWarpSize = 32;

// Calls body(i) for [0, count), spread over the cluster.
template <class Body>
__device__ void for_each(std::int64_t count, const Body& body) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kListThreads + threadIdx.x; i < count;
       i += kClusterBlocks * kListThreads)
    body(i);
}

// Takes `count` places for each lane of a warp: the first of its own.
__device__ __forceinline__ int place_in_warp(std::int32_t* used, int count) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  int end = count;
#pragma unroll
  for (int step = 1; step < kWarpSize; step *= 2) {
    const int before = __shfl_up_sync(~0U, end, step);
    if (lane >= step) end += before;
  }
  int base = 0;
  if (lane == kWarpSize - 1) base = atomicAdd(used, end);
  return __shfl_sync(~0U, base, kWarpSize - 1) + end - count;
}

// Values that other blocks wrote are read from L2: this block's L1 may hold older ones.
__global__ void __cluster_dims__(kClusterBlocks) __launch_bounds__(kListThreads)
    lists_kernel(const std::int32_t* token, std::int64_t tokens, std::int64_t vocabulary,
                 const TokenLists lists) {
  const auto cluster = cooperative_groups::this_cluster();
  hopper::griddepcontrol_launch_dependents();
  for_each(vocabulary, [&](std::int64_t v) { lists.count[v] = 0; });
  for_each(kTotals, [&](std::int64_t i) { lists.totals[i] = 0; });
  cluster.sync();
  for_each(tokens, [&](std::int64_t t) {
    lists.slot[t] = token[t] < 0 ? -1 : atomicAdd(lists.count + token[t], 1);
  });
  cluster.sync();
  // Whole warps: the lanes beyond the last token have nothing to place.
  for_each((tokens + kWarpSize - 1) / kWarpSize * kWarpSize, [&](std::int64_t t) {
    const bool first = t < tokens && lists.slot[t] == 0;
    const std::int32_t v = first ? token[t] : 0, count = first ? __ldcg(lists.count + v) : 0;
    const int start = place_in_warp(lists.totals + kUsed, count);
    const int index = place_in_warp(lists.totals + kNamed, first ? 1 : 0);
    if (!first) return;
    const NamedToken named{v, start, count, 0};
    lists.start[v] = start;
    lists.named[index] = named;
    if (count > kLongList) lists.long_named[atomicAdd(lists.totals + kLong, 1)] = named;
  });
  cluster.sync();
  for_each(tokens, [&](std::int64_t t) {
    if (token[t] < 0) return;
    lists.list[__ldcg(lists.start + token[t]) + lists.slot[t]] = static_cast<std::int32_t>(t);
  });
}

// A warp for each position in a long list; its lanes compare with the list together.
__global__ void __launch_bounds__(kRankThreads)
    ranks_kernel(const std::int32_t* token, std::int64_t tokens, const TokenLists lists) {
  const std::int64_t t =
      std::int64_t{blockIdx.x} * (kRankThreads / kWarpSize) + threadIdx.x / kWarpSize;
  hopper::griddepcontrol_launch_dependents();
  hopper::griddepcontrol_wait();
  if (t >= tokens) return;
  const std::int32_t v = token[t];
  const std::int32_t count = v < 0 ? 0 : lists.count[v];
  if (count <= kLongList) return;
  const std::int32_t start = lists.start[v];
  int rank = 0;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x) % kWarpSize; i < count; i += kWarpSize)
    rank += lists.list[start + i] < t ? 1 : 0;
  rank = __reduce_add_sync(~0U, rank);
  if (threadIdx.x % kWarpSize == 0) lists.ordered[start + rank] = static_cast<std::int32_t>(t);
}

}  // namespace

TokenLists lists_in(void* workspace, std::int64_t tokens, std::int64_t vocabulary) {
  auto* next = static_cast<std::int32_t*>(workspace);
  const auto take = [&next](std::int64_t count) {
    std::int32_t* taken = next;
    next += count;
    return taken;
  };
  constexpr std::int64_t kWords = sizeof(NamedToken) / sizeof(std::int32_t);
  TokenLists lists{};
  lists.named = reinterpret_cast<NamedToken*>(take(kWords * tokens));
  lists.long_named = reinterpret_cast<NamedToken*>(take(kWords * (tokens / kLongList)));
  lists.count = take(vocabulary);
  lists.start = take(vocabulary);
  lists.slot = take(tokens);
  lists.list = take(tokens);
  lists.ordered = take(tokens);
  lists.totals = take(kTotals);
  return lists;
}

cudaError_t launch_lists(const std::int32_t* token, std::int64_t tokens, std::int64_t vocabulary,
                         const TokenLists& lists, cudaStream_t stream) {
  lists_kernel<<<kClusterBlocks, kListThreads, 0, stream>>>(token, tokens, vocabulary, lists);
  if (const cudaError_t code = cudaGetLastError(); code != cudaSuccess) return code;
  if (tokens <= kLongList) return cudaSuccess;
  constexpr int kPerBlock = kRankThreads / kWarpSize;
  return hopper::launch_dependent(ranks_kernel,
                                  static_cast<unsigned>((tokens + kPerBlock - 1) / kPerBlock),
                                  kRankThreads, 0, stream, token, tokens, lists);
}

}  // namespace stowage::kernels::embedding
