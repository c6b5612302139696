#include "kernels/grouped_mlp/grouped_linear.hpp"
#include "kernels/grouped_mlp/grouped_mlp.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Bf16;

namespace {

template <class Op, class S>
Op activation_of(Activation kind, std::int64_t rows, std::int64_t experts, std::int64_t columns,
                 const Accumulation<S>* row_weight) {
  return {.kind = kind,
          .rows = rows,
          .columns = columns,
          .storage = execution::kDtypeOf<S>,
          .weighted = row_weight != nullptr,
          .valid = {.counts = experts + 1, .index = experts}};
}

template <class S>
void activate(Activation kind, std::int64_t rows, std::int64_t experts, std::int64_t columns,
              const S* h, const std::int32_t* offsets, const Accumulation<S>* row_weight, S* a) {
  activation_of<ActivationForward, S>(kind, rows, experts, columns, row_weight)
      .template reference<S>({.x = h, .row_weight = row_weight, .y = a, .valid_rows = offsets});
}

}  // namespace

template <class S>
void grouped_fc1_forward_ref(Activation kind, std::int64_t rows, std::int64_t experts,
                             std::int64_t columns, std::int64_t width, const S* x, const S* w1,
                             const std::int32_t* offsets, const Accumulation<S>* row_weight, S* h,
                             S* a) {
  grouped_linear_forward_ref(experts, activation_width(kind, columns), width, x, w1, offsets, h);
  activate(kind, rows, experts, columns, h, offsets, row_weight, a);
}

// g has the extents of a, and waits there until the gradient is made of it.
template <class S>
void grouped_fc2_backward_input_ref(Activation kind, std::int64_t rows, std::int64_t experts,
                                    std::int64_t columns, std::int64_t width, const S* dy,
                                    const S* w2, const std::int32_t* offsets,
                                    const Accumulation<S>* row_weight, const S* h, S* dh, S* a,
                                    Accumulation<S>* drow_weight) {
  grouped_linear_backward_input_ref(experts, width, columns, dy, w2, offsets, a, false);
  activation_of<ActivationBackward, S>(kind, rows, experts, columns, row_weight)
      .template reference<S>({.dy = a,
                              .x = h,
                              .row_weight = row_weight,
                              .dx = dh,
                              .drow_weight = drow_weight,
                              .valid_rows = offsets});
  activate(kind, rows, experts, columns, h, offsets, row_weight, a);
}

#define STOWAGE_INSTANTIATE(S)                                                                 \
  template void grouped_fc1_forward_ref(Activation, std::int64_t, std::int64_t, std::int64_t,  \
                                        std::int64_t, const S*, const S*, const std::int32_t*, \
                                        const Accumulation<S>*, S*, S*);                       \
  template void grouped_fc2_backward_input_ref(                                                \
      Activation, std::int64_t, std::int64_t, std::int64_t, std::int64_t, const S*, const S*,  \
      const std::int32_t*, const Accumulation<S>*, const S*, S*, S*, Accumulation<S>*);
STOWAGE_INSTANTIATE(double)
STOWAGE_INSTANTIATE(float)
STOWAGE_INSTANTIATE(Bf16)
#undef STOWAGE_INSTANTIATE

}  // namespace stowage::kernels
