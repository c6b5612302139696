#include "kernels/blas.hpp"
#include "kernels/linear/linear.hpp"

namespace stowage::kernels {

using execution::Accumulation;

namespace {

// Calls f.operator()<Y>() with the type of y or dy.
template <class S, class Op, class F>
void with_result_type(const Op& op, const F& f) {
  if (op.result == op.storage)
    f.template operator()<S>();
  else
    f.template operator()<Accumulation<S>>();
}

}  // namespace

template <class S>
void LinearForward::reference(const Operands<Pointers<S>>& o) const {
  with_result_type<S>(*this, [&]<class Y>() {
    matmul<S, S, Y>({{o.x, rows, inputs, inputs}}, {{o.w, outputs, inputs, inputs}, Transpose::yes},
                    {static_cast<Y*>(o.y), rows, outputs, outputs}, false);
  });
}

template <class S>
void LinearBackwardInput::reference(const Operands<Pointers<S>>& o) const {
  with_result_type<S>(*this, [&]<class Y>() {
    matmul<Y, S, S>({{static_cast<const Y*>(o.dy), rows, outputs, outputs}},
                    {{o.w, outputs, inputs, inputs}}, {o.dx, rows, inputs, inputs}, accumulate);
  });
}

template <class S>
void LinearBackwardWeight::reference(const Operands<Pointers<S>>& o) const {
  with_result_type<S>(*this, [&]<class Y>() {
    matmul<Y, S, Accumulation<S>>(
        {{static_cast<const Y*>(o.dy), rows, outputs, outputs}, Transpose::yes},
        {{o.x, rows, inputs, inputs}}, {o.dw, outputs, inputs, inputs}, accumulate);
  });
}

template <class S>
void LinearBackward::reference(const Operands<Pointers<S>>& o) const {
  weight().reference<S>({.dy = o.dy, .x = o.x, .dw = o.dw});
  input().reference<S>({.dy = o.dy, .w = o.w, .dx = o.dx});
}

STOWAGE_REFERENCES(LinearForward)
STOWAGE_REFERENCES(LinearBackwardInput)
STOWAGE_REFERENCES(LinearBackwardWeight)
STOWAGE_REFERENCES(LinearBackward)

}  // namespace stowage::kernels
