// Device code of sums by a tree: bound by memory, 16 bytes of a row to a thread at once.
//
// A leaf is added on the compute lane, where nothing else runs. Which nodes it meets is the same
// for all elements, so a thread finds that once for kPacks packs.
//
// Nodes of ranks are added beside products, so the kernel is as that of sums in rank order
// (rank_order_reduce.cu). Ranks with one node each, the usual case, have the tree at compile time:
// all rows are on their way at once, and no sum is indexed at run time.

#include <algorithm>
#include <cstdint>

#include "execution/overlapping_products.cuh"
#include "parallel/groups/tree_nodes.hpp"

namespace stowage::parallel::detail {
namespace {

using namespace execution::overlapping;

/// Threads of a block that adds leaves: full occupancy.
constexpr int kThreads = 256;
/// Packs of one thread: 4 KiB of a row to a warp, which outweighs the search of the nodes.
constexpr int kPacks = 8;

template <class A>
bool in_packs(const A* row) {
  return reinterpret_cast<std::uintptr_t>(row) % sizeof(TreePack<A>) == 0;
}

/// @param packs whole ones of a row; the rest goes one by one
template <class A>
__global__ void __launch_bounds__(kThreads)
    add_leaf_kernel(const __grid_constant__ AddLeaf<A> add, const std::int64_t count,
                    const std::int64_t packs) {
  const Merge found = add.found();
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t first = std::int64_t{blockIdx.x} * kPacks * kThreads + thread;
#pragma unroll
  for (int p = 0; p < kPacks; ++p)
    if (const std::int64_t at = first + p * kThreads; at < packs)
      add.template add<TreePack<A>>(at, found);
  for (std::int64_t i =
           packs * TreePack<A>::kElements + std::int64_t{blockIdx.x} * kThreads + thread;
       i < count; i += std::int64_t{gridDim.x} * kThreads)
    add.template add<A>(i, found);
}

/// `kNumber` packs of rows of T, a warp's length apart from `at` on. With one node of each rank all
/// are read before one is written.
/// @param kNodes of such ranks, or 0: any
template <int kNodes, int kNumber, class T, class A>
__device__ __forceinline__ void add_packs(const AddNodes<A>& add, std::int64_t at) {
  if constexpr (kNodes == 0) {
    for (int p = 0; p < kNumber; ++p) add.template add<T>(at + p * kWarp);
  } else {
    T sums[kNumber];
#pragma unroll
    for (int p = 0; p < kNumber; ++p) sums[p] = add.template even_sum<kNodes, T>(at + p * kWarp, 0);
#pragma unroll
    for (int p = 0; p < kNumber; ++p) reinterpret_cast<T*>(add.out)[at + p * kWarp] = sums[p];
  }
}

/// @param packs whole ones of a row; the rest goes one by one  @param rounds of a block, 2 packs of
/// a lane each
template <int kNodes, class A>
__global__ void __maxnreg__(kRegistersOverlapping)
    add_nodes_kernel(const __grid_constant__ AddNodes<A> add, const std::int64_t count,
                     const std::int64_t packs, const int rounds) {
  using Pack = TreePack<A>;
  const int lane = static_cast<int>(threadIdx.x);
  std::int64_t at = std::int64_t{blockIdx.x} * rounds * 2 * kWarp + lane;
  for (int round = 0; round < rounds; ++round, at += 2 * kWarp) {
    if (kNodes == 2 && at + kWarp < packs) {
      add_packs<kNodes, 2, Pack>(add, at);
    } else {
      if (at < packs) add_packs<kNodes, 1, Pack>(add, at);
      if (at + kWarp < packs) add_packs<kNodes, 1, Pack>(add, at + kWarp);
    }
  }
  for (std::int64_t i = packs * Pack::kElements + std::int64_t{blockIdx.x} * kWarp + lane;
       i < count; i += std::int64_t{gridDim.x} * kWarp)
    add_packs<kNodes, 1, A>(add, i);
}

template <int kNodes, class A>
int launch_nodes(cudaStream_t stream, std::int64_t count, const AddNodes<A>& add) {
  if (const cudaError_t kept = keep_division_of_products<add_nodes_kernel<kNodes, A>>();
      kept != cudaSuccess)
    return kept;
  constexpr int kElements = TreePack<A>::kElements;
  bool packed = add.stride % kElements == 0 && in_packs(add.others) && in_packs(add.out);
  for (const A* node : add.own) packed = packed && in_packs(node);  // those of none are null
  const std::int64_t packs = packed ? count / kElements : 0;
  const auto [blocks, rounds] = rounds_of(packs, 2 * kWarp);
  const unsigned others = rounds_of(count - packs * kElements, kWarp).blocks;  // stride the grid
  add_nodes_kernel<kNodes>
      <<<std::max(blocks, others), kWarp, 0, stream>>>(add, count, packs, rounds);
  return cudaGetLastError();
}

}  // namespace

template <class A>
int launch_on_stream(void* stream, std::int64_t count, const AddLeaf<A>& add) {
  constexpr int kElements = TreePack<A>::kElements;
  bool packed = in_packs(add.leaf);
  for (const A* node : add.kept) packed = packed && in_packs(node);
  const std::int64_t packs = packed ? count / kElements : 0;
  constexpr std::int64_t kOfBlock = kPacks * kThreads;
  const std::int64_t blocks = std::max(
      (packs + kOfBlock - 1) / kOfBlock,
      std::min<std::int64_t>((count - packs * kElements + kThreads - 1) / kThreads, kOfBlock));
  add_leaf_kernel<<<static_cast<unsigned>(blocks), kThreads, 0,
                    static_cast<cudaStream_t>(stream)>>>(add, count, packs);
  return cudaGetLastError();
}

template <class A>
int launch_on_stream(void* stream, std::int64_t count, const AddNodes<A>& add) {
  const auto queue = static_cast<cudaStream_t>(stream);
  if (add.even() && add.ranks == 2) return launch_nodes<2>(queue, count, add);
  if (add.even() && add.ranks == 4) return launch_nodes<4>(queue, count, add);
  if (add.even() && add.ranks == 8) return launch_nodes<8>(queue, count, add);
  return launch_nodes<0>(queue, count, add);
}

template int launch_on_stream(void*, std::int64_t, const AddLeaf<float>&);
template int launch_on_stream(void*, std::int64_t, const AddLeaf<double>&);
template int launch_on_stream(void*, std::int64_t, const AddNodes<float>&);
template int launch_on_stream(void*, std::int64_t, const AddNodes<double>&);

}  // namespace stowage::parallel::detail
