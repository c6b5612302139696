#pragma once

#include <cstdint>

#include "execution/dtype.hpp"
#include "execution/parallel_for.hpp"
#include "parallel/collectives.hpp"

/// The arithmetic of reductions on element i, written once for both backends.
namespace stowage::parallel::detail {

/// out[i] = the elements i of all ranks combined in rank order, in A. The other ranks'
/// rows lie one behind the other; this rank's own is apart and may be `out`.
template <class Out, class Wire, class A>
struct Fold {
  const Wire* rows;
  std::int64_t stride;  ///< elements from one row to the next
  const Wire* own;
  Out* out;
  int rank, ranks;
  Reduction reduction;

  STOWAGE_PORTABLE void operator()(std::int64_t i) const {
    A all = static_cast<A>(row(0)[i]);
    for (int r = 1; r < ranks; ++r) {
      const A one = static_cast<A>(row(r)[i]);
      // Written so that a NaN in either stays.
      if (reduction == Reduction::sum)
        all += one;
      else if (reduction == Reduction::min)
        all = all < one || all != all ? all : one;
      else
        all = all > one || all != all ? all : one;
    }
    out[i] = static_cast<Out>(all);
  }
  STOWAGE_PORTABLE const Wire* row(int r) const {
    return r == rank ? own : rows + (r < rank ? r : r - 1) * stride;
  }
};

/// to[i] = from[i], rounded to bf16.
struct ToWire {
  const float* from;
  execution::Bf16* to;

  STOWAGE_PORTABLE void operator()(std::int64_t i) const {
    to[i] = static_cast<execution::Bf16>(from[i]);
  }
};

}  // namespace stowage::parallel::detail
