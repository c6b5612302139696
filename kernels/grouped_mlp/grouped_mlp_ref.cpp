#include "kernels/grouped_mlp/grouped_linear.hpp"
#include "kernels/grouped_mlp/grouped_mlp.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Bf16;

template <class S>
void grouped_fc1_forward_ref(Activation kind, std::int64_t rows, std::int64_t experts,
                             std::int64_t columns, std::int64_t width, const S* x, const S* w1,
                             const std::int32_t* offsets, const Accumulation<S>* row_weight, S* h,
                             S* a) {
  grouped_linear_forward_ref(experts, activation_width(kind, columns), width, x, w1, offsets, h);
  activation_forward_ref(kind, rows, columns, h, row_weight, a, offsets + experts);
}

// g has the extents of a, and waits there until the gradient is made of it.
template <class S>
void grouped_fc2_backward_input_ref(Activation kind, std::int64_t rows, std::int64_t experts,
                                    std::int64_t columns, std::int64_t width, const S* dy,
                                    const S* w2, const std::int32_t* offsets,
                                    const Accumulation<S>* row_weight, const S* h, S* dh, S* a,
                                    Accumulation<S>* drow_weight) {
  grouped_linear_backward_input_ref(experts, width, columns, dy, w2, offsets, a, false);
  activation_backward_ref(kind, rows, columns, a, h, row_weight, dh, drow_weight,
                          offsets + experts);
  activation_forward_ref(kind, rows, columns, h, row_weight, a, offsets + experts);
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
