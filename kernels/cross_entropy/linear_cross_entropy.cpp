#include "kernels/cross_entropy/linear_cross_entropy.hpp"

#include <algorithm>

#include "kernels/cost.hpp"
#include "kernels/cross_entropy/products.hpp"
#include "kernels/cross_entropy/row_chunk.hpp"
#include "kernels/cross_entropy/softmax_launch.hpp"
#include "kernels/launch.hpp"

namespace stowage::kernels {

using cross_entropy::Products;
using execution::Cost;
using execution::Dtype;

template <class S>
int LinearCrossEntropy::launch(const Operands<Pointers<S>>& o, void* handle) const {
  const auto stream = static_cast<cudaStream_t>(handle);
  const std::int64_t chunk = cross_entropy_device_chunk(tokens, vocabulary);
  if (tokens == 0 && gradients)
    dense_product(Products<S>(0, vocabulary, width, accumulate).dw, nullptr, nullptr, o.dw, stream);
  for (std::int64_t begin = 0; begin < tokens; begin += chunk) {
    const std::int64_t rows = std::min(chunk, tokens - begin);
    const Products<S> products(rows, vocabulary, width, accumulate || begin > 0);
    const S* h = o.h + begin * width;
    dense_product(products.logits, h, o.w, o.workspace, stream);
    const cross_entropy::Logits logits{.rows = rows,
                                       .vocabulary = vocabulary,
                                       .logits = o.workspace,
                                       .targets = o.targets + begin,
                                       .losses = o.losses + begin,
                                       .scale = o.scale,
                                       .hits = o.hits ? o.hits + begin : nullptr};
    const int code = z_coeff > 0 ? cross_entropy::launch<S>(
                                       cross_entropy::WithZLoss<cross_entropy::Logits>{
                                           logits, static_cast<float>(z_coeff), o.z_losses + begin},
                                       handle)
                                 : cross_entropy::launch<S>(logits, handle);
    if (code != 0) return code;
    if (!gradients) continue;
    dense_product(products.dh, o.workspace, o.w, o.dh + begin * width, stream);
    dense_product(products.dw, o.workspace, h, o.dw, stream);
  }
  return 0;
}

std::size_t LinearCrossEntropy::workspace_bytes() const {
  const std::int64_t rows = std::max(cross_entropy_chunk(tokens, vocabulary),
                                     cross_entropy_device_chunk(tokens, vocabulary));
  return static_cast<std::size_t>(rows * vocabulary) *
         execution::size_bytes(execution::accumulation(storage));
}

Cost LinearCrossEntropy::cost() const {
  const Dtype sums = execution::accumulation(storage);
  const std::int64_t rows = cross_entropy_device_chunk(tokens, vocabulary);
  const auto chunks = static_cast<double>(rows > 0 ? (tokens + rows - 1) / rows : 1);
  const double read = bytes((tokens + vocabulary) * width, storage) + bytes(tokens, Dtype::int32) +
                      bytes(tokens, sums);
  if (!gradients)
    return {product_flops(tokens, vocabulary, width), read, 0, bytes(tokens * vocabulary, sums),
            2 * chunks - 1};
  return {
      3 * product_flops(tokens, vocabulary, width),
      read + bytes(tokens * width, storage) + passes(accumulate) * bytes(vocabulary * width, sums),
      0, bytes(tokens * vocabulary, sums) + bytes(tokens * vocabulary, storage), 4 * chunks - 1};
}

STOWAGE_OPERATOR_RUN(LinearCrossEntropy)

}  // namespace stowage::kernels
