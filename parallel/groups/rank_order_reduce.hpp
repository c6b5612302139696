#pragma once

#include <cstdint>

#include "execution/dtype.hpp"
#include "execution/parallel_for.hpp"
#include "parallel/groups/collectives.hpp"

/// The arithmetic of reductions on element i, written once for both backends.
namespace stowage::parallel::detail {

/// out[i] = the elements i of all ranks combined in rank order, in A. The other ranks'
/// rows lie one behind the other; this rank's own is apart and may be `out`.
template <class Out, class Wire, class A>
struct RankOrderReduce {
  const Wire* rows;
  std::int64_t stride;  ///< elements from one row to the next
  const Wire* own;
  Out* out;
  int rank, ranks;
  Reduction reduction;

  STOWAGE_PORTABLE void operator()(std::int64_t i) const {
    A all = static_cast<A>(row(0)[i]);
    for (int r = 1; r < ranks; ++r) all = combine(all, static_cast<A>(row(r)[i]));
    out[i] = static_cast<Out>(all);
  }
  /// Written so that a NaN in either stays.
  STOWAGE_PORTABLE A combine(A all, A one) const {
    if (reduction == Reduction::sum) return all + one;
    if (reduction == Reduction::min) return all < one || all != all ? all : one;
    return all > one || all != all ? all : one;
  }
  STOWAGE_PORTABLE const Wire* row(int r) const {
    return r == rank ? own : rows + (r < rank ? r : r - 1) * stride;
  }
};

/// What parallel_for launches for it: rank_order_reduce.cu says why it is not a plain launch.
template <class Out, class Wire, class A>
int launch_on_stream(void* stream, std::int64_t count, const RankOrderReduce<Out, Wire, A>& reduce);

/// to[i] = from[i], rounded to bf16: a reduction of one row.
inline RankOrderReduce<execution::Bf16, float, float> to_wire(const float* from,
                                                              execution::Bf16* to) {
  return {nullptr, 0, from, to, 0, 1, Reduction::sum};
}

}  // namespace stowage::parallel::detail
