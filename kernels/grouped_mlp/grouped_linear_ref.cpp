#include "kernels/blas.hpp"
#include "kernels/grouped_mlp/grouped_linear.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Bf16;

namespace {

// The rows of expert e of a row-major (rows, columns).
template <class T>
Matrix<T> rows_of(T* data, std::int64_t columns, const std::int32_t* offsets, std::int64_t e) {
  return {data + offsets[e] * columns, offsets[e + 1] - offsets[e], columns, columns};
}

template <class T>
Matrix<T> weight_of(T* data, std::int64_t outputs, std::int64_t inputs, std::int64_t e) {
  return {data + e * outputs * inputs, outputs, inputs, inputs};
}

}  // namespace

template <class S>
void grouped_linear_forward_ref(std::int64_t experts, std::int64_t outputs, std::int64_t inputs,
                                const S* x, const S* w, const std::int32_t* offsets, S* y) {
  for (std::int64_t e = 0; e < experts; ++e) {
    const Factor<S> left{rows_of(x, inputs, offsets, e), Transpose::no};
    const Factor<S> right{weight_of(w, outputs, inputs, e), Transpose::yes};
    matmul(left, right, rows_of(y, outputs, offsets, e), false);
  }
}

template <class S>
void grouped_linear_backward_input_ref(std::int64_t experts, std::int64_t outputs,
                                       std::int64_t inputs, const S* dy, const S* w,
                                       const std::int32_t* offsets, S* dx, bool accumulate) {
  for (std::int64_t e = 0; e < experts; ++e) {
    const Factor<S> left{rows_of(dy, outputs, offsets, e), Transpose::no};
    const Factor<S> right{weight_of(w, outputs, inputs, e), Transpose::no};
    matmul(left, right, rows_of(dx, inputs, offsets, e), accumulate);
  }
}

template <class S>
void grouped_linear_backward_weight_ref(std::int64_t experts, std::int64_t outputs,
                                        std::int64_t inputs, const S* dy, const S* x,
                                        const std::int32_t* offsets, Accumulation<S>* dw,
                                        bool accumulate) {
  for (std::int64_t e = 0; e < experts; ++e) {
    const Factor<S> left{rows_of(dy, outputs, offsets, e), Transpose::yes};
    const Factor<S> right{rows_of(x, inputs, offsets, e), Transpose::no};
    matmul(left, right, weight_of(dw, outputs, inputs, e), accumulate);
  }
}

#define STOWAGE_INSTANTIATE(S)                                                                 \
  template void grouped_linear_forward_ref(std::int64_t, std::int64_t, std::int64_t, const S*, \
                                           const S*, const std::int32_t*, S*);                 \
  template void grouped_linear_backward_input_ref(std::int64_t, std::int64_t, std::int64_t,    \
                                                  const S*, const S*, const std::int32_t*, S*, \
                                                  bool);                                       \
  template void grouped_linear_backward_weight_ref(std::int64_t, std::int64_t, std::int64_t,   \
                                                   const S*, const S*, const std::int32_t*,    \
                                                   Accumulation<S>*, bool);
STOWAGE_INSTANTIATE(double)
STOWAGE_INSTANTIATE(float)
STOWAGE_INSTANTIATE(Bf16)
#undef STOWAGE_INSTANTIATE

}  // namespace stowage::kernels
