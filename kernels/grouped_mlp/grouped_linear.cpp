#include "kernels/grouped_mlp/grouped_linear.hpp"

#include "kernels/cost.hpp"
#include "kernels/dispatch.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Cost;
using execution::Dtype;
using execution::Queue;
using execution::View;

namespace {

// Extents of a grouped product; x (rows, K), y (rows, M), w (E, M, K).
struct Sizes {
  std::int64_t rows, experts, outputs, inputs;
};

Sizes check_sizes(const Operands& operands, const View& x, std::string_view x_name, const View& y,
                  std::string_view y_name, const View& w, std::string_view w_name, Dtype w_dtype,
                  const View& offsets) {
  const Dtype storage = operands.storage(x, x_name);
  operands.rank(x, x_name, 2);
  operands.rank(w, w_name, 3);
  const Sizes s{x.extent(0), w.extent(0), w.extent(1), x.extent(1)};
  operands.check(y, y_name, storage, {s.rows, s.outputs});
  operands.check(w, w_name, w_dtype, {s.experts, s.outputs, s.inputs});
  operands.check(offsets, "offsets", Dtype::int32, {s.experts + 1});
  return s;
}

}  // namespace

void grouped_linear_forward(Queue& queue, const View& x, const View& w, const View& offsets,
                            const View& y) {
  const Operands operands("grouped_linear_forward");
  const Dtype storage = operands.storage(x, "x");
  const Sizes s = check_sizes(operands, x, "x", y, "y", w, "w", storage, offsets);
  run(queue, "grouped_linear_forward", storage,
      [=, x = Address(x), w = Address(w), offsets = Address(offsets), y = Address(y)]<class S>() {
        grouped_linear_forward_ref(s.experts, s.outputs, s.inputs, x.as<const S>(), w.as<const S>(),
                                   offsets.as<const std::int32_t>(), y.as<S>());
      });
}

void grouped_linear_backward_input(Queue& queue, const View& dy, const View& w, const View& offsets,
                                   const View& dx, bool accumulate) {
  const Operands operands("grouped_linear_backward_input");
  const Dtype storage = operands.storage(dx, "dx");
  const Sizes s = check_sizes(operands, dx, "dx", dy, "dy", w, "w", storage, offsets);
  run(queue, "grouped_linear_backward_input", storage,
      [=, dy = Address(dy), w = Address(w), offsets = Address(offsets),
       dx = Address(dx)]<class S>() {
        grouped_linear_backward_input_ref(s.experts, s.outputs, s.inputs, dy.as<const S>(),
                                          w.as<const S>(), offsets.as<const std::int32_t>(),
                                          dx.as<S>(), accumulate);
      });
}

void grouped_linear_backward_weight(Queue& queue, const View& dy, const View& x,
                                    const View& offsets, const View& dw, bool accumulate) {
  const Operands operands("grouped_linear_backward_weight");
  const Dtype storage = operands.storage(x, "x");
  const Sizes s =
      check_sizes(operands, x, "x", dy, "dy", dw, "dw", execution::accumulation(storage), offsets);
  run(queue, "grouped_linear_backward_weight", storage,
      [=, dy = Address(dy), x = Address(x), offsets = Address(offsets),
       dw = Address(dw)]<class S>() {
        grouped_linear_backward_weight_ref(s.experts, s.outputs, s.inputs, dy.as<const S>(),
                                           x.as<const S>(), offsets.as<const std::int32_t>(),
                                           dw.as<Accumulation<S>>(), accumulate);
      });
}

Cost grouped_linear_forward_cost(std::int64_t rows, std::int64_t experts, std::int64_t outputs,
                                 std::int64_t inputs, Dtype storage) {
  return {product_flops(rows, outputs, inputs),
          bytes(rows * (inputs + outputs), storage) + bytes(experts * outputs * inputs, storage)};
}

Cost grouped_linear_backward_input_cost(std::int64_t rows, std::int64_t experts,
                                        std::int64_t outputs, std::int64_t inputs, Dtype storage,
                                        bool accumulate) {
  return {product_flops(rows, outputs, inputs),
          bytes(rows * outputs, storage) + bytes(experts * outputs * inputs, storage) +
              passes(accumulate) * bytes(rows * inputs, storage)};
}

Cost grouped_linear_backward_weight_cost(std::int64_t rows, std::int64_t experts,
                                         std::int64_t outputs, std::int64_t inputs, Dtype storage,
                                         bool accumulate) {
  return {
      product_flops(rows, outputs, inputs),
      bytes(rows * (inputs + outputs), storage) +
          passes(accumulate) * bytes(experts * outputs * inputs, execution::accumulation(storage))};
}

}  // namespace stowage::kernels
