#include "kernels/cross_entropy/sharded_cross_entropy_cuda.hpp"

#include <type_traits>

#include "execution/cuda_check.hpp"
#include "kernels/cross_entropy/products.hpp"
#include "kernels/cross_entropy/softmax_launch.hpp"

namespace stowage::kernels::cross_entropy {

using execution::Bf16;

namespace {

template <class S>
LogitsPart part_of(const PartOperands<S>& o) {
  return {.rows = o.rows,
          .vocabulary = o.vocabulary,
          .first = o.first,
          .logits = o.logits,
          .targets = o.targets,
          .stats = o.stats,
          .ranks = o.ranks,
          .losses = o.losses,
          .scale = o.scale,
          .hits = o.hits};
}

template <class S>
Products<S> products_of(const PartOperands<S>& o) {
  return {o.rows, o.vocabulary, o.width, o.accumulate};
}

}  // namespace

template <class S>
void enqueue_logits(const PartOperands<S>& o, void* handle) {
  if (o.rows == 0) return;
  dense_product(products_of(o).logits, o.h, o.w, o.logits, static_cast<cudaStream_t>(handle));
  STOWAGE_CUDA(static_cast<cudaError_t>(launch_part_stats(part_of(o), handle)));
}

template <class S>
void enqueue_gradients(const PartOperands<S>& o, void* handle) {
  const auto stream = static_cast<cudaStream_t>(handle);
  STOWAGE_CUDA(static_cast<cudaError_t>(launch_part_gradient<S>(part_of(o), handle)));
  if (o.scale == nullptr) return;
  const Products<S> products = products_of(o);
  if (o.rows > 0) dense_product(products.dh, o.logits, o.w, o.dh, stream);
  dense_product(products.dw, o.logits, o.h, o.dw, stream);
}

template void enqueue_logits(const PartOperands<float>&, void*);
template void enqueue_logits(const PartOperands<Bf16>&, void*);
template void enqueue_gradients(const PartOperands<float>&, void*);
template void enqueue_gradients(const PartOperands<Bf16>&, void*);

}  // namespace stowage::kernels::cross_entropy
