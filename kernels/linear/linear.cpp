#include "kernels/linear/linear.hpp"

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"
#include "kernels/linear/dense_product.hpp"
#include "kernels/linear/mixed_backward.hpp"
#include "kernels/linear/mixed_product.hpp"
#include "kernels/linear/product_fill.hpp"

namespace stowage::kernels {

using execution::Cost;
using execution::Dtype;

namespace {

template <class Op>
std::string wrong_result(const Op& op) {
  return op.result == op.storage || op.result == execution::accumulation(op.storage)
             ? ""
             : "y or dy has neither the storage dtype nor its accumulation dtype";
}

}  // namespace

std::string LinearForward::fault() const { return wrong_result(*this); }

template <class S>
int LinearForward::launch(const Operands<Pointers<S>>& o, void* stream) const {
  dense_product(
      dense_shape(rows, outputs, inputs, Transpose::no, Transpose::yes, storage, result, false),
      o.x, o.w, o.y, static_cast<cudaStream_t>(stream));
  return 0;
}

Cost LinearForward::cost() const {
  return {product_flops(rows, outputs, inputs),
          bytes(rows * inputs, storage) + bytes(outputs * inputs, storage) +
              bytes(rows * outputs, result),
          product_idle_flops(rows, outputs, inputs)};
}

std::string LinearBackwardInput::fault() const { return wrong_result(*this); }

template <class S>
int LinearBackwardInput::launch(const Operands<Pointers<S>>& o, void* stream) const {
  if (result != storage)
    mixed_backward_input(rows, outputs, inputs, static_cast<const float*>(o.dy), o.w, o.dx,
                         accumulate, static_cast<cudaStream_t>(stream));
  else
    dense_product(dense_shape(rows, inputs, outputs, Transpose::no, Transpose::no, storage, storage,
                              accumulate),
                  o.dy, o.w, o.dx, static_cast<cudaStream_t>(stream));
  return 0;
}

Cost LinearBackwardInput::cost() const {
  return {product_flops(rows, outputs, inputs),
          bytes(rows * outputs, result) + bytes(outputs * inputs, storage) +
              passes(accumulate) * bytes(rows * inputs, storage),
          product_idle_flops(rows, inputs, outputs)};
}

std::string LinearBackwardWeight::fault() const { return wrong_result(*this); }

template <class S>
int LinearBackwardWeight::launch(const Operands<Pointers<S>>& o, void* stream) const {
  if (result != storage)
    mixed_backward_weight(rows, outputs, inputs, static_cast<const float*>(o.dy), o.x, o.dw,
                          accumulate, static_cast<cudaStream_t>(stream));
  else
    dense_product(dense_shape(outputs, inputs, rows, Transpose::yes, Transpose::no, storage,
                              Dtype::fp32, accumulate),
                  o.dy, o.x, o.dw, static_cast<cudaStream_t>(stream));
  return 0;
}

Cost LinearBackwardWeight::cost() const {
  return {product_flops(rows, outputs, inputs),
          bytes(rows * outputs, result) + bytes(rows * inputs, storage) +
              passes(accumulate) * bytes(outputs * inputs, execution::accumulation(storage)),
          product_idle_flops(outputs, inputs, rows)};
}

template <class S>
int LinearBackward::launch(const Operands<Pointers<S>>& o, void* stream) const {
  if (result != storage && mixed_backward_fits(rows, outputs, inputs, {o.x, o.w, o.dx, o.dw})) {
    mixed_backward(rows, outputs, inputs, static_cast<const float*>(o.dy), o.x, o.w, o.dx,
                   accumulate_dx, o.dw, accumulate_dw, static_cast<cudaStream_t>(stream));
    return 0;
  }
  (void)weight().launch<S>({.dy = o.dy, .x = o.x, .dw = o.dw}, stream);
  return input().launch<S>({.dy = o.dy, .w = o.w, .dx = o.dx}, stream);
}

Cost LinearBackward::cost() const {
  Cost cost = input().cost() + weight().cost();
  cost.bytes -= bytes(rows * outputs, result);  // read once for both
  return cost;
}

STOWAGE_OPERATOR_RUN(LinearForward)
STOWAGE_OPERATOR_RUN(LinearBackwardInput)
STOWAGE_OPERATOR_RUN(LinearBackwardWeight)
STOWAGE_OPERATOR_RUN(LinearBackward)

}  // namespace stowage::kernels
