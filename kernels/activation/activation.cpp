#include "kernels/activation/activation.hpp"

#include "kernels/activation/activation_launch.hpp"
#include "kernels/cost.hpp"
#include "kernels/launch.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Cost;
using execution::Dtype;
using execution::Queue;
using execution::View;

namespace {

// The address of the count, or null.
const std::int32_t* count_address(const Operands& operands, const ValidRows& valid_rows) {
  if (!valid_rows.view) return nullptr;
  operands.rank(valid_rows.view, "valid_rows", 1);
  operands.require(valid_rows.view.dtype() == Dtype::int32 && valid_rows.index >= 0 &&
                       valid_rows.index < valid_rows.view.extent(0),
                   "valid_rows is no element of an int32 tensor");
  return valid_rows.view.as<const std::int32_t>() + valid_rows.index;
}

}  // namespace

void activation_forward(Queue& queue, Activation kind, const View& x, const View& row_weight,
                        const View& y, const ValidRows& valid_rows) {
  const Operands operands("activation_forward");
  const Dtype storage = operands.storage(y, "y");
  operands.rank(y, "y", 2);
  const std::int64_t rows = y.extent(0), columns = y.extent(1);
  operands.check(x, "x", storage, {rows, activation_width(kind, columns)});
  operands.check_optional(row_weight, "row_weight", execution::accumulation(storage), {rows});
  const std::int32_t* valid = count_address(operands, valid_rows);
  run(
      queue, "activation_forward", storage,
      [=, x = Address(x), weight = Address(row_weight), y = Address(y)]<class S>() {
        activation_forward_ref(kind, rows, columns, x.as<const S>(),
                               weight.as<const Accumulation<S>>(), y.as<S>(), valid);
      },
      [&]<class S>(void* stream) {
        return activation::launch(
            activation::Forward<S>{
                .kind = kind,
                .rows = rows,
                .columns = columns,
                .x = x.as<const S>(),
                .row_weight = row_weight ? row_weight.as<const float>() : nullptr,
                .y = y.as<S>(),
                .valid_rows = valid},
            stream);
      });
}

void activation_backward(Queue& queue, Activation kind, const View& dy, const View& x,
                         const View& row_weight, const View& dx, const View& drow_weight,
                         const ValidRows& valid_rows) {
  const Operands operands("activation_backward");
  const Dtype storage = operands.storage(dy, "dy");
  operands.rank(dy, "dy", 2);
  const std::int64_t rows = dy.extent(0), columns = dy.extent(1);
  const std::int64_t width = activation_width(kind, columns);
  const Dtype accumulation = execution::accumulation(storage);
  operands.check(x, "x", storage, {rows, width});
  operands.check(dx, "dx", storage, {rows, width});
  operands.check_optional(row_weight, "row_weight", accumulation, {rows});
  operands.check_optional(drow_weight, "drow_weight", accumulation, {rows});
  operands.require(static_cast<bool>(row_weight) == static_cast<bool>(drow_weight),
                   "one of row_weight and drow_weight is absent, the other is not");
  const std::int32_t* valid = count_address(operands, valid_rows);
  run(
      queue, "activation_backward", storage,
      [=, dy = Address(dy), x = Address(x), weight = Address(row_weight), dx = Address(dx),
       dweight = Address(drow_weight)]<class S>() {
        using A = Accumulation<S>;
        activation_backward_ref(kind, rows, columns, dy.as<const S>(), x.as<const S>(),
                                weight.as<const A>(), dx.as<S>(), dweight.as<A>(), valid);
      },
      [&]<class S>(void* stream) {
        return activation::launch(
            activation::Backward<S>{
                .kind = kind,
                .rows = rows,
                .columns = columns,
                .dy = dy.as<const S>(),
                .x = x.as<const S>(),
                .row_weight = row_weight ? row_weight.as<const float>() : nullptr,
                .dx = dx.as<S>(),
                .drow_weight = drow_weight ? drow_weight.as<float>() : nullptr,
                .valid_rows = valid},
            stream);
      });
}

Cost activation_forward_cost(Activation kind, std::int64_t rows, std::int64_t columns,
                             Dtype storage) {
  const double flops_per_value = kind == Activation::swiglu ? 6 : 3;
  return {flops_per_value * static_cast<double>(rows * columns),
          bytes(rows * (activation_width(kind, columns) + columns), storage)};
}

Cost activation_backward_cost(Activation kind, std::int64_t rows, std::int64_t columns,
                              Dtype storage) {
  const double flops_per_value = kind == Activation::swiglu ? 14 : 5;
  return {flops_per_value * static_cast<double>(rows * columns),
          bytes(rows * (2 * activation_width(kind, columns) + columns), storage)};
}

}  // namespace stowage::kernels
