#pragma once

#include <cstdint>

#include "kernels/linear/dense_product.hpp"

namespace stowage::kernels::cross_entropy {

/// The three products of some rows of logits on a GPU. The gradient of a row of logits begins where
/// the logits began, so in bf16 its rows are 2 V elements apart.
template <class S>
struct Products {
  static constexpr execution::Dtype kStorage = execution::kDtypeOf<S>;

  /// @param accumulate the weight's gradient is added to
  Products(std::int64_t rows, std::int64_t vocabulary, std::int64_t width, bool accumulate)
      : logits(dense_shape(rows, vocabulary, width, Transpose::no, Transpose::yes, kStorage,
                           execution::Dtype::fp32, false)),
        dh(dense_shape(rows, width, vocabulary, Transpose::no, Transpose::no, kStorage, kStorage,
                       false)),
        dw(dense_shape(vocabulary, width, rows, Transpose::yes, Transpose::no, kStorage,
                       execution::Dtype::fp32, accumulate)) {
    dh.a_stride = dw.a_stride = kStorage == execution::Dtype::bf16 ? 2 * vocabulary : vocabulary;
  }

  ProductShape logits, dh, dw;
};

}  // namespace stowage::kernels::cross_entropy
