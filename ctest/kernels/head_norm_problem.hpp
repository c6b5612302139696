#pragma once

#include "ctest/kernels/operator_arrays.hpp"
#include "kernels/norm/head_rmsnorm.hpp"

namespace stowage::kernels::test {

/// Norms of query and key heads on random data.
struct HeadNormSizes {
  std::int64_t tokens, heads, kv_heads, head_dim;
  bool accumulate;
  bool zero_centred = false;

  static constexpr double kEps = 1e-5;
  HeadSizes of_heads() const { return {heads, kv_heads, head_dim}; }
  HeadRmsnormForward forward(Dtype storage) const {
    return {.tokens = tokens,
            .sizes = of_heads(),
            .storage = storage,
            .eps = kEps,
            .zero_centred = zero_centred};
  }
  HeadRmsnormBackward backward(Dtype storage) const {
    return {.tokens = tokens,
            .sizes = of_heads(),
            .storage = storage,
            .eps = kEps,
            .accumulate = accumulate,
            .zero_centred = zero_centred};
  }
};

/// Arrays for one of its operators; what is normed is three times as large.
template <class Op>
Arrays<Op> head_norm_arrays(const Op& op, Random& random) {
  const Arrays<Op> arrays = make_arrays(op, random);
  set(arrays.in, random.normal(op.tokens * op.sizes.width(), 3));
  return arrays;
}

}  // namespace stowage::kernels::test
