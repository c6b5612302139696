#include "kernels/blas.hpp"
#include "kernels/linear/linear.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Bf16;

template <class S, class Y>
void linear_forward_ref(std::int64_t rows, std::int64_t outputs, std::int64_t inputs, const S* x,
                        const S* w, Y* y) {
  const Factor<S> left{{x, rows, inputs, inputs}, Transpose::no};
  const Factor<S> right{{w, outputs, inputs, inputs}, Transpose::yes};
  matmul(left, right, Matrix<Y>{y, rows, outputs, outputs}, false);
}

template <class S, class Y>
void linear_backward_input_ref(std::int64_t rows, std::int64_t outputs, std::int64_t inputs,
                               const Y* dy, const S* w, S* dx, bool accumulate) {
  const Factor<Y> left{{dy, rows, outputs, outputs}, Transpose::no};
  const Factor<S> right{{w, outputs, inputs, inputs}, Transpose::no};
  matmul(left, right, Matrix<S>{dx, rows, inputs, inputs}, accumulate);
}

template <class S, class Y>
void linear_backward_weight_ref(std::int64_t rows, std::int64_t outputs, std::int64_t inputs,
                                const Y* dy, const S* x, Accumulation<S>* dw, bool accumulate) {
  const Factor<Y> left{{dy, rows, outputs, outputs}, Transpose::yes};
  const Factor<S> right{{x, rows, inputs, inputs}, Transpose::no};
  matmul(left, right, Matrix<Accumulation<S>>{dw, outputs, inputs, inputs}, accumulate);
}

#define STOWAGE_INSTANTIATE(S, Y)                                                                \
  template void linear_forward_ref(std::int64_t, std::int64_t, std::int64_t, const S*, const S*, \
                                   Y*);                                                          \
  template void linear_backward_input_ref(std::int64_t, std::int64_t, std::int64_t, const Y*,    \
                                          const S*, S*, bool);                                   \
  template void linear_backward_weight_ref(std::int64_t, std::int64_t, std::int64_t, const Y*,   \
                                           const S*, Accumulation<S>*, bool);
STOWAGE_INSTANTIATE(double, double)
STOWAGE_INSTANTIATE(float, float)
STOWAGE_INSTANTIATE(Bf16, Bf16)
STOWAGE_INSTANTIATE(Bf16, float)
#undef STOWAGE_INSTANTIATE

}  // namespace stowage::kernels
