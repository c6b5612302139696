#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "execution/dtype.hpp"

namespace stowage::kernels::test {

/// Rows of each expert, rows of none, and the extents of the matrices: rows of D and of F values.
struct ExpertCase {
  std::vector<std::int32_t> counts;
  std::int64_t spare, d, f;

  std::int64_t experts() const { return static_cast<std::int64_t>(counts.size()); }
  std::int64_t valid() const { return std::accumulate(counts.begin(), counts.end(), 0); }
  std::int64_t rows() const { return valid() + spare; }
  std::vector<std::int32_t> offsets() const {
    std::vector<std::int32_t> sums{0};
    for (const std::int32_t count : counts) sums.push_back(sums.back() + count);
    return sums;
  }
  /// A product of rows of F to rows of D values, or one of its gradients.
  template <class Op>
  Op product(execution::Dtype storage, bool accumulate = false) const {
    Op op{};
    op.rows = op.routed = rows();
    op.experts = experts();
    op.outputs = d;
    op.inputs = f;
    op.storage = storage;
    if constexpr (requires { op.accumulate; }) op.accumulate = accumulate;
    return op;
  }
};

}  // namespace stowage::kernels::test
