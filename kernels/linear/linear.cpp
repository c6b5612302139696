#include "kernels/linear/linear.hpp"

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"
#include "kernels/linear/dense_product.hpp"
#include "kernels/linear/mixed_backward.hpp"
#include "kernels/linear/mixed_product.hpp"
#include "kernels/linear/product_fill.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Cost;
using execution::Dtype;
using execution::Queue;
using execution::View;

namespace {

// The dtype of y or dy: that of storage, or the accumulation dtype.
Dtype result_dtype(const Operands& operands, const View& y, std::string_view operand,
                   Dtype storage) {
  const Dtype dtype = operands.storage(y, operand);
  operands.require(dtype == storage || dtype == execution::accumulation(storage),
                   "y or dy has neither the storage dtype nor its accumulation dtype");
  return dtype;
}

// Calls f.operator()<Y>() with the type of y or dy.
template <class S, class F>
void with_result_type(bool accumulated, F&& f) {
  if (accumulated)
    f.template operator()<Accumulation<S>>();
  else
    f.template operator()<S>();
}

/// y = x w^T, or their gradients: its extents and dtypes.
struct Sizes {
  std::int64_t n, m, k;
  Dtype storage, result;  ///< the latter of y or dy
};

/// The sizes of x (n, K), w (M, K) and y or dy (n, M), which are checked.
Sizes check_product(const Operands& operands, const View& x, const View& w, const View& y,
                    const char* y_name) {
  const Dtype storage = operands.storage(x, "x");
  operands.rank(x, "x", 2);
  operands.rank(w, "w", 2);
  const Sizes s{x.extent(0), w.extent(0), x.extent(1), storage,
                result_dtype(operands, y, y_name, storage)};
  operands.check(w, "w", storage, {s.m, s.k});
  operands.check(y, y_name, s.result, {s.n, s.m});
  return s;
}

}  // namespace

void linear_forward(Queue& queue, const View& x, const View& w, const View& y) {
  const Sizes s = check_product(Operands("linear_forward"), x, w, y, "y");
  const std::int64_t n = s.n, m = s.m, k = s.k;
  const Dtype storage = s.storage, result = s.result;
  const auto reference = [=, x = Address(x), w = Address(w), y = Address(y)]<class S>() {
    with_result_type<S>(result != storage, [&]<class Y>() {
      linear_forward_ref(n, m, k, x.as<const S>(), w.as<const S>(), y.as<Y>());
    });
  };
  run(queue, "linear_forward", storage, reference, [&]<class>(void* stream) {
    dense_product(dense_shape(n, m, k, Transpose::no, Transpose::yes, storage, result, false),
                  x.data[0], w.data[0], y.data[0], static_cast<cudaStream_t>(stream));
    return 0;
  });
}

void linear_backward_input(Queue& queue, const View& dy, const View& w, const View& dx,
                           bool accumulate) {
  const Operands operands("linear_backward_input");
  const Dtype storage = operands.storage(dx, "dx");
  operands.rank(dx, "dx", 2);
  operands.rank(w, "w", 2);
  const std::int64_t n = dx.extent(0), m = w.extent(0), k = dx.extent(1);
  const Dtype gradient = result_dtype(operands, dy, "dy", storage);
  operands.check(w, "w", storage, {m, k});
  operands.check(dy, "dy", gradient, {n, m});
  const auto reference = [=, dy = Address(dy), w = Address(w), dx = Address(dx)]<class S>() {
    with_result_type<S>(gradient != storage, [&]<class Y>() {
      linear_backward_input_ref(n, m, k, dy.as<const Y>(), w.as<const S>(), dx.as<S>(), accumulate);
    });
  };
  run(queue, "linear_backward_input", storage, reference, [&]<class>(void* handle) {
    const auto stream = static_cast<cudaStream_t>(handle);
    if (gradient != storage)
      mixed_backward_input(n, m, k, dy.as<const float>(), w.data[0], dx.data[0], accumulate,
                           stream);
    else
      dense_product(
          dense_shape(n, k, m, Transpose::no, Transpose::no, storage, storage, accumulate),
          dy.data[0], w.data[0], dx.data[0], stream);
    return 0;
  });
}

void linear_backward_weight(Queue& queue, const View& dy, const View& x, const View& dw,
                            bool accumulate) {
  const Operands operands("linear_backward_weight");
  const Dtype storage = operands.storage(x, "x");
  operands.rank(x, "x", 2);
  operands.rank(dw, "dw", 2);
  const std::int64_t n = x.extent(0), m = dw.extent(0), k = x.extent(1);
  const Dtype gradient = result_dtype(operands, dy, "dy", storage);
  operands.check(dy, "dy", gradient, {n, m});
  operands.check(dw, "dw", execution::accumulation(storage), {m, k});
  const auto reference = [=, dy = Address(dy), x = Address(x), dw = Address(dw)]<class S>() {
    with_result_type<S>(gradient != storage, [&]<class Y>() {
      linear_backward_weight_ref(n, m, k, dy.as<const Y>(), x.as<const S>(),
                                 dw.as<Accumulation<S>>(), accumulate);
    });
  };
  run(queue, "linear_backward_weight", storage, reference, [&]<class>(void* handle) {
    const auto stream = static_cast<cudaStream_t>(handle);
    if (gradient != storage)
      mixed_backward_weight(n, m, k, dy.as<const float>(), x.data[0], dw.as<float>(), accumulate,
                            stream);
    else
      dense_product(
          dense_shape(m, k, n, Transpose::yes, Transpose::no, storage, Dtype::fp32, accumulate),
          dy.data[0], x.data[0], dw.data[0], stream);
    return 0;
  });
}

void linear_backward(Queue& queue, const View& dy, const View& x, const View& w, const View& dx,
                     bool accumulate_dx, const View& dw, bool accumulate_dw) {
  const Operands operands("linear_backward");
  const Sizes s = check_product(operands, x, w, dy, "dy");
  const std::int64_t n = s.n, m = s.m, k = s.k;
  const Dtype storage = s.storage, gradient = s.result;
  operands.check(dx, "dx", storage, {n, k});
  operands.check(dw, "dw", execution::accumulation(storage), {m, k});
  const auto reference = [=, dy = Address(dy), x = Address(x), w = Address(w), dx = Address(dx),
                          dw = Address(dw)]<class S>() {
    with_result_type<S>(gradient != storage, [&]<class Y>() {
      linear_backward_weight_ref(n, m, k, dy.as<const Y>(), x.as<const S>(),
                                 dw.as<Accumulation<S>>(), accumulate_dw);
      linear_backward_input_ref(n, m, k, dy.as<const Y>(), w.as<const S>(), dx.as<S>(),
                                accumulate_dx);
    });
  };
  run(queue, "linear_backward", storage, reference, [&]<class>(void* handle) {
    if (gradient != storage &&
        mixed_backward_fits(n, m, k, {x.data[0], w.data[0], dx.data[0], dw.data[0]})) {
      mixed_backward(n, m, k, dy.as<const float>(), x.data[0], w.data[0], dx.data[0], accumulate_dx,
                     dw.as<float>(), accumulate_dw, static_cast<cudaStream_t>(handle));
    } else {
      linear_backward_weight(queue, dy, x, dw, accumulate_dw);
      linear_backward_input(queue, dy, w, dx, accumulate_dx);
    }
    return 0;
  });
}

Cost linear_forward_cost(std::int64_t rows, std::int64_t outputs, std::int64_t inputs,
                         Dtype storage, Dtype result) {
  return {product_flops(rows, outputs, inputs),
          bytes(rows * inputs, storage) + bytes(outputs * inputs, storage) +
              bytes(rows * outputs, result),
          product_idle_flops(rows, outputs, inputs)};
}

Cost linear_backward_input_cost(std::int64_t rows, std::int64_t outputs, std::int64_t inputs,
                                Dtype storage, Dtype gradient, bool accumulate) {
  return {product_flops(rows, outputs, inputs),
          bytes(rows * outputs, gradient) + bytes(outputs * inputs, storage) +
              passes(accumulate) * bytes(rows * inputs, storage),
          product_idle_flops(rows, inputs, outputs)};
}

Cost linear_backward_weight_cost(std::int64_t rows, std::int64_t outputs, std::int64_t inputs,
                                 Dtype storage, Dtype gradient, bool accumulate) {
  return {product_flops(rows, outputs, inputs),
          bytes(rows * outputs, gradient) + bytes(rows * inputs, storage) +
              passes(accumulate) * bytes(outputs * inputs, execution::accumulation(storage)),
          product_idle_flops(outputs, inputs, rows)};
}

Cost linear_backward_cost(std::int64_t rows, std::int64_t outputs, std::int64_t inputs,
                          Dtype storage, Dtype gradient, bool accumulate_dx, bool accumulate_dw) {
  Cost cost = linear_backward_input_cost(rows, outputs, inputs, storage, gradient, accumulate_dx) +
              linear_backward_weight_cost(rows, outputs, inputs, storage, gradient, accumulate_dw);
  cost.bytes -= bytes(rows * outputs, gradient);  // read once for both
  return cost;
}

}  // namespace stowage::kernels
