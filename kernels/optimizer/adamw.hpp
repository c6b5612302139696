#pragma once

#include <cstdint>
#include <span>

#include "execution/op.hpp"
#include "kernels/matrix.hpp"

namespace stowage::kernels {

/// One parameter of the optimizer with its state, or a piece of it: the data of all views begin at
/// the piece, of which nothing outside is read or written.
struct AdamwTensor {
  execution::View parameter;   ///< storage dtype
  execution::View master;      ///< accumulation dtype; absent: the parameter is its own master
  execution::View gradient;    ///< accumulation dtype, as are m and v
  execution::View m;           ///< first moment
  execution::View v;           ///< second moment
  std::int64_t elements = -1;  ///< of the piece; every view holds at least as many
  bool decay = false;          ///< weight decay applies
};

struct AdamwOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
};

/// One step of AdamW (decoupled weight decay, arXiv 1711.05101) on all tensors:
///
///   g = gradient * min(1, clip / (norm + 1e-6)),  s = step + 1
///   m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2
///   master = master - lr (m / (1 - beta1^s) / (sqrt(v / (1 - beta2^s)) + eps) + decay * master)
///   parameter = round(master)
///
/// schedule (2): {lr, weight decay}, accumulation dtype; step (1) int64: good steps so far;
/// norm (1) accumulation dtype; step_ok (1) int32: nothing is written where it is 0. `clip` <= 0
/// means no clipping. All tensors have one storage dtype. An element gets the same bits however its
/// tensor is cut into pieces. Reads `step`, does not change it: see
/// advance().
void adamw(execution::Queue& queue, std::span<const AdamwTensor> tensors,
           const execution::View& schedule, const execution::View& step,
           const execution::View& norm, double clip, const execution::View& step_ok,
           const AdamwOptions& options);

/// ++step if step_ok: an operation of its own, after adamw.
void advance(execution::Queue& queue, const execution::View& step, const execution::View& step_ok);

/// Of `elements` parameters; `master`: there is a master beside the parameter.
execution::Cost adamw_cost(std::int64_t elements, execution::Dtype storage, bool master);

/// What the elements of one step have in common.
template <class A>
struct AdamwStep {
  A lr, weight_decay, clip_factor;
  A beta1, beta2, eps;
  A correction1, correction2;  ///< 1 / (1 - beta^s), computed in fp64
};
template <class A>
AdamwStep<A> make_adamw_step(const A* schedule, std::int64_t step, A norm, double clip,
                             const AdamwOptions& options);

/// One tensor in host memory; master may be nullptr.
template <class S>
struct AdamwPointers {
  using A = execution::Accumulation<S>;
  S* parameter = nullptr;
  A* master = nullptr;
  const A* gradient = nullptr;
  A* m = nullptr;
  A* v = nullptr;
  std::int64_t elements = 0;
  bool decay = false;
};

/// Host reference for one tensor of a good step.
template <class S>
void adamw_ref(const AdamwPointers<S>& tensor, const AdamwStep<execution::Accumulation<S>>& step);

}  // namespace stowage::kernels
