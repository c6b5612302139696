#include "kernels/cross_entropy/linear_cross_entropy_cuda.hpp"

#include <algorithm>

#include "execution/cuda_check.hpp"
#include "kernels/cross_entropy/products.hpp"
#include "kernels/cross_entropy/row_chunk.hpp"
#include "kernels/cross_entropy/softmax_launch.hpp"

namespace stowage::kernels::cross_entropy {

using execution::Bf16;

template <class S>
void enqueue(const Operands<S>& o, void* handle) {
  const auto stream = static_cast<cudaStream_t>(handle);
  const std::int64_t chunk = cross_entropy_device_chunk(o.tokens, o.vocabulary);
  if (o.tokens == 0 && o.scale != nullptr)
    dense_product(Products<S>(0, o.vocabulary, o.width, o.accumulate).dw, nullptr, nullptr, o.dw,
                  stream);
  for (std::int64_t begin = 0; begin < o.tokens; begin += chunk) {
    const std::int64_t rows = std::min(chunk, o.tokens - begin);
    const Products<S> products(rows, o.vocabulary, o.width, o.accumulate || begin > 0);
    const S* h = o.h + begin * o.width;
    dense_product(products.logits, h, o.w, o.logits, stream);
    STOWAGE_CUDA(static_cast<cudaError_t>(launch<S>({.rows = rows,
                                                     .vocabulary = o.vocabulary,
                                                     .logits = o.logits,
                                                     .targets = o.targets + begin,
                                                     .losses = o.losses + begin,
                                                     .scale = o.scale,
                                                     .hits = o.hits ? o.hits + begin : nullptr},
                                                    handle)));
    if (o.scale == nullptr) continue;
    dense_product(products.dh, o.logits, o.w, o.dh + begin * o.width, stream);
    dense_product(products.dw, o.logits, h, o.dw, stream);
  }
}

template void enqueue(const Operands<float>&, void*);
template void enqueue(const Operands<Bf16>&, void*);

}  // namespace stowage::kernels::cross_entropy
