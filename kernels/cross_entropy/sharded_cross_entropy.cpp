#include "kernels/cross_entropy/sharded_cross_entropy.hpp"

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
int ShardedLogits::launch(const Operands<Pointers<S>>& o, void* stream) const {
  if (rows == 0) return 0;
  dense_product(Products<S>(rows, vocabulary, width, false).logits, o.h, o.w, o.logits,
                static_cast<cudaStream_t>(stream));
  return cross_entropy::launch_part_stats({.rows = rows,
                                           .vocabulary = vocabulary,
                                           .first = first,
                                           .logits = o.logits,
                                           .targets = o.targets,
                                           .stats = o.stats,
                                           .ranks = 1,
                                           .losses = nullptr,
                                           .scale = nullptr},
                                          stream);
}

Cost ShardedLogits::cost() const {
  const Dtype sums = execution::accumulation(storage);
  return {product_flops(rows, vocabulary, width),
          bytes((rows + vocabulary) * width, storage) + bytes(rows * vocabulary, sums), 0,
          bytes(rows * vocabulary, sums), 1};
}

template <class S>
int ShardedCrossEntropy::launch(const Operands<Pointers<S>>& o, void* handle) const {
  const cross_entropy::LogitsPart part{.rows = rows,
                                       .vocabulary = vocabulary,
                                       .first = first,
                                       .logits = o.logits,
                                       .targets = o.targets,
                                       .stats = const_cast<float*>(o.stats),
                                       .ranks = static_cast<int>(ranks),
                                       .losses = o.losses,
                                       .scale = o.scale,
                                       .hits = o.hits};
  const int code = z_coeff > 0 ? cross_entropy::launch_part_gradient<S>(
                                     cross_entropy::WithZLoss<cross_entropy::LogitsPart>{
                                         part, static_cast<float>(z_coeff), o.z_losses},
                                     handle)
                               : cross_entropy::launch_part_gradient<S>(part, handle);
  if (code != 0 || !gradients) return code;
  const auto stream = static_cast<cudaStream_t>(handle);
  const Products<S> products(rows, vocabulary, width, accumulate);
  if (rows > 0) dense_product(products.dh, o.logits, o.w, o.dh, stream);
  dense_product(products.dw, o.logits, o.h, o.dw, stream);
  return 0;
}

Cost ShardedCrossEntropy::cost() const {
  const Dtype sums = execution::accumulation(storage);
  if (!gradients) return {0, bytes(4 * rows, sums)};
  return {2 * product_flops(rows, vocabulary, width),
          bytes(2 * rows * width + vocabulary * width, storage) +
              passes(accumulate) * bytes(vocabulary * width, sums),
          0, bytes(rows * vocabulary, sums) + bytes(rows * vocabulary, storage), 2};
}

std::int64_t sharded_cross_entropy_chunk(std::int64_t rows, std::int64_t vocabulary) {
  return cross_entropy_device_chunk(rows, vocabulary);
}

STOWAGE_OPERATOR_RUN(ShardedLogits)
STOWAGE_OPERATOR_RUN(ShardedCrossEntropy)

}  // namespace stowage::kernels
