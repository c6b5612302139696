#include "kernels/blas.hpp"
#include "kernels/grouped_mlp/grouped_linear.hpp"

namespace stowage::kernels {

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
void GroupedLinearForward::reference(const Operands<Pointers<S>>& o) const {
  for (std::int64_t e = 0; e < experts; ++e) {
    const Factor<S> left{rows_of(o.x, inputs, o.offsets, e), Transpose::no};
    const Factor<S> right{weight_of(o.w, outputs, inputs, e), Transpose::yes};
    matmul(left, right, rows_of(o.y, outputs, o.offsets, e), false);
  }
}

template <class S>
void GroupedLinearBackwardInput::reference(const Operands<Pointers<S>>& o) const {
  for (std::int64_t e = 0; e < experts; ++e) {
    const Factor<S> left{rows_of(o.dy, outputs, o.offsets, e), Transpose::no};
    const Factor<S> right{weight_of(o.w, outputs, inputs, e), Transpose::no};
    matmul(left, right, rows_of(o.dx, inputs, o.offsets, e), accumulate);
  }
}

template <class S>
void GroupedLinearBackwardWeight::reference(const Operands<Pointers<S>>& o) const {
  for (std::int64_t e = 0; e < experts; ++e) {
    const Factor<S> left{rows_of(o.dy, outputs, o.offsets, e), Transpose::yes};
    const Factor<S> right{rows_of(o.x, inputs, o.offsets, e), Transpose::no};
    matmul(left, right, weight_of(o.dw, outputs, inputs, e), accumulate);
  }
}

STOWAGE_REFERENCES(GroupedLinearForward)
STOWAGE_REFERENCES(GroupedLinearBackwardInput)
STOWAGE_REFERENCES(GroupedLinearBackwardWeight)

}  // namespace stowage::kernels
