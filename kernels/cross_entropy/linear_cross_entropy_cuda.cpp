#include "kernels/cross_entropy/linear_cross_entropy_cuda.hpp"

#include <algorithm>
#include <type_traits>

#include "execution/cuda_check.hpp"
#include "kernels/cross_entropy/row_chunk.hpp"
#include "kernels/cross_entropy/softmax_launch.hpp"
#include "kernels/linear/dense_product.hpp"

namespace stowage::kernels::cross_entropy {

using execution::Bf16;
using execution::Dtype;

namespace {

// The three products of a chunk of rows. The gradient of a row of logits begins where the logits
// began, so in bf16 its rows are 2 V elements apart.
template <class S>
struct Products {
  static constexpr Dtype kStorage = std::is_same_v<S, Bf16> ? Dtype::bf16 : Dtype::fp32;

  Products(const Operands<S>& o, std::int64_t rows, bool accumulate)
      : logits(dense_shape(rows, o.vocabulary, o.width, Transpose::no, Transpose::yes, kStorage,
                           Dtype::fp32, false)),
        dh(dense_shape(rows, o.width, o.vocabulary, Transpose::no, Transpose::no, kStorage,
                       kStorage, false)),
        dw(dense_shape(o.vocabulary, o.width, rows, Transpose::yes, Transpose::no, kStorage,
                       Dtype::fp32, accumulate)) {
    dh.a_stride = dw.a_stride = o.vocabulary * std::int64_t{sizeof(float) / sizeof(S)};
  }

  ProductShape logits, dh, dw;
};

}  // namespace

template <class S>
void enqueue(const Operands<S>& o, void* handle) {
  const auto stream = static_cast<cudaStream_t>(handle);
  const std::int64_t chunk = cross_entropy_device_chunk(o.tokens, o.vocabulary);
  if (o.tokens == 0 && o.scale != nullptr)
    dense_product(Products<S>(o, 0, o.accumulate).dw, nullptr, nullptr, o.dw, stream);
  for (std::int64_t begin = 0; begin < o.tokens; begin += chunk) {
    const std::int64_t rows = std::min(chunk, o.tokens - begin);
    const Products<S> products(o, rows, o.accumulate || begin > 0);
    const S* h = o.h + begin * o.width;
    dense_product(products.logits, h, o.w, o.logits, stream);
    STOWAGE_CUDA(static_cast<cudaError_t>(launch<S>({.rows = rows,
                                                     .vocabulary = o.vocabulary,
                                                     .logits = o.logits,
                                                     .targets = o.targets + begin,
                                                     .losses = o.losses + begin,
                                                     .scale = o.scale},
                                                    handle)));
    if (o.scale == nullptr) continue;
    dense_product(products.dh, o.logits, o.w, o.dh + begin * o.width, stream);
    dense_product(products.dw, o.logits, h, o.dw, stream);
  }
}

template void enqueue(const Operands<float>&, void*);
template void enqueue(const Operands<Bf16>&, void*);

}  // namespace stowage::kernels::cross_entropy
