// Device code of reductions over ranks: bound by memory, ranks + 1 elements each.
//
// A reduction that waits until products give back their SMs holds up every rank, so its blocks are
// what fits beside them (overlapping_products.cuh). Beside products it runs one block an SM; alone
// as many as an SM takes.

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "execution/overlapping_products.cuh"
#include "parallel/groups/rank_order_reduce.hpp"

namespace stowage::parallel::detail {
namespace {

using namespace execution::overlapping;
using execution::Bf16;

/// Neighbouring elements that are read or written at once.
template <class T, int kCount>
struct alignas(kCount * sizeof(T)) Pack {
  T values[kCount];
};

/// Elements of a pack: 16 bytes of the wider type. Integers are few, and go one by one.
template <class Out, class Wire>
constexpr int kPackSize = std::is_integral_v<Wire>
                              ? 1
                              : static_cast<int>(16 / std::max(sizeof(Out), sizeof(Wire)));

/// Sums packs `at` of kRanks ranks: all are on their way at once, as many as 32 registers hold.
template <int kRanks, int kPacks, class Out, class Wire, class A>
__device__ __forceinline__ void sum_packs(const RankOrderReduce<Out, Wire, A>& reduce,
                                          std::int64_t at) {
  constexpr int kSize = kPackSize<Out, Wire>;
  using In = Pack<Wire, kSize>;
  In rows[kRanks][kPacks];
#pragma unroll
  for (int r = 0; r < kRanks; ++r) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
      rows[r][p] = reinterpret_cast<const In*>(reduce.row(r))[at + p * kWarp];
  }
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    Pack<Out, kSize> sums;
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      A all = static_cast<A>(rows[0][p].values[i]);
#pragma unroll
      for (int r = 1; r < kRanks; ++r) all += static_cast<A>(rows[r][p].values[i]);
      sums.values[i] = static_cast<Out>(all);
    }
    reinterpret_cast<Pack<Out, kSize>*>(reduce.out)[at + p * kWarp] = sums;
  }
}

/// Sums pack `at` of any number of ranks.
template <class Out, class Wire, class A>
__device__ __forceinline__ void sum_pack(const RankOrderReduce<Out, Wire, A>& reduce,
                                         std::int64_t at) {
  constexpr int kSize = kPackSize<Out, Wire>;
  using In = Pack<Wire, kSize>;
  A all[kSize];
  In row = reinterpret_cast<const In*>(reduce.row(0))[at];
#pragma unroll
  for (int i = 0; i < kSize; ++i) all[i] = static_cast<A>(row.values[i]);
#pragma unroll 2
  for (int r = 1; r < reduce.ranks; ++r) {
    row = reinterpret_cast<const In*>(reduce.row(r))[at];
#pragma unroll
    for (int i = 0; i < kSize; ++i) all[i] += static_cast<A>(row.values[i]);
  }
  Pack<Out, kSize> sums;
#pragma unroll
  for (int i = 0; i < kSize; ++i) sums.values[i] = static_cast<Out>(all[i]);
  reinterpret_cast<Pack<Out, kSize>*>(reduce.out)[at] = sums;
}

/// @param packs whole ones of a sum, which begin at multiples of their size; the rest goes one by
/// one, as do minima and maxima, which are few: with them 32 registers hold no four ranks' packs
/// @param rounds of a block, 2 packs of a lane each
template <class Out, class Wire, class A>
__global__ void __maxnreg__(kRegistersOverlapping)
    rank_order_reduce_kernel(const RankOrderReduce<Out, Wire, A> reduce, const std::int64_t count,
                             const std::int64_t packs, const int rounds) {
  const int lane = static_cast<int>(threadIdx.x);
  std::int64_t at = std::int64_t{blockIdx.x} * rounds * 2 * kWarp + lane;
  for (int round = 0; round < rounds; ++round, at += 2 * kWarp) {
    if (reduce.ranks == 2 && at + kWarp < packs) {
      sum_packs<2, 2>(reduce, at);
    } else if (reduce.ranks == 4) {
      if (at < packs) sum_packs<4, 1>(reduce, at);
      if (at + kWarp < packs) sum_packs<4, 1>(reduce, at + kWarp);
    } else {
      if (at < packs) sum_pack(reduce, at);
      if (at + kWarp < packs) sum_pack(reduce, at + kWarp);
    }
  }
  for (std::int64_t i = packs * kPackSize<Out, Wire> + std::int64_t{blockIdx.x} * kWarp + lane;
       i < count; i += std::int64_t{gridDim.x} * kWarp)
    reduce(i);
}

template <int kCount, class T>
bool in_packs(const T* row) {
  return reinterpret_cast<std::uintptr_t>(row) % sizeof(Pack<T, kCount>) == 0;
}

}  // namespace

template <class Out, class Wire, class A>
int launch_on_stream(void* stream, std::int64_t count,
                     const RankOrderReduce<Out, Wire, A>& reduce) {
  if (const cudaError_t kept = keep_division_of_products<rank_order_reduce_kernel<Out, Wire, A>>();
      kept != cudaSuccess)
    return kept;
  constexpr int kSize = kPackSize<Out, Wire>;
  bool packed = reduce.reduction == Reduction::sum && in_packs<kSize>(reduce.out);
  for (int r = 0; r < reduce.ranks; ++r) packed = packed && in_packs<kSize>(reduce.row(r));
  const std::int64_t packs = packed ? count / kSize : 0;
  const auto [blocks, rounds] = rounds_of(packs, 2 * kWarp);
  const unsigned others = rounds_of(count - packs * kSize, kWarp).blocks;  // stride the grid
  rank_order_reduce_kernel<<<std::max(blocks, others), kWarp, 0,
                             static_cast<cudaStream_t>(stream)>>>(reduce, count, packs, rounds);
  return cudaGetLastError();
}

template int launch_on_stream(void*, std::int64_t, const RankOrderReduce<double, double, double>&);
template int launch_on_stream(void*, std::int64_t, const RankOrderReduce<float, float, float>&);
template int launch_on_stream(void*, std::int64_t, const RankOrderReduce<Bf16, Bf16, float>&);
template int launch_on_stream(void*, std::int64_t, const RankOrderReduce<float, Bf16, float>&);
template int launch_on_stream(void*, std::int64_t, const RankOrderReduce<Bf16, float, float>&);
template int launch_on_stream(void*, std::int64_t,
                              const RankOrderReduce<std::int32_t, std::int32_t, std::int32_t>&);
template int launch_on_stream(void*, std::int64_t,
                              const RankOrderReduce<std::int64_t, std::int64_t, std::int64_t>&);

}  // namespace stowage::parallel::detail
