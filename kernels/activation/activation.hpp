#pragma once

#include <cstdint>

#include "execution/op.hpp"

namespace stowage::kernels {

/// The nonlinearity of an MLP. squared_relu: max(x, 0)^2 (arXiv 2109.08668). swiglu: silu(gate) *
/// up (arXiv 2002.05202) on rows [gate, up].
enum class Activation : unsigned char { squared_relu, swiglu };

/// Columns of the input for F columns of the output: F, or 2 F for swiglu.
constexpr std::int64_t activation_width(Activation kind, std::int64_t columns) {
  return kind == Activation::swiglu ? 2 * columns : columns;
}

/// A number of leading rows that only the device knows: element `index` of an int32 tensor, such as
/// the last of a grouped product's offsets. Absent: all rows.
struct ValidRows {
  execution::View view;
  std::int64_t index = 0;
};

/// y (rows, F) = row_weight * act(x), x (rows, activation_width(kind, F)). row_weight (rows) in the
/// accumulation dtype may be absent: 1. Rows beyond `valid_rows` are neither read nor written.
void activation_forward(execution::Queue& queue, Activation kind, const execution::View& x,
                        const execution::View& row_weight, const execution::View& y,
                        const ValidRows& valid_rows = {});

/// dx = row_weight * act'(x) dy, and drow_weight[i] = sum over columns of dy * act(x). row_weight
/// and drow_weight (rows), in the accumulation dtype, are both present or both absent. Rows beyond
/// `valid_rows` are neither read nor written.
void activation_backward(execution::Queue& queue, Activation kind, const execution::View& dy,
                         const execution::View& x, const execution::View& row_weight,
                         const execution::View& dx, const execution::View& drow_weight,
                         const ValidRows& valid_rows = {});

/// `columns` is F.
execution::Cost activation_forward_cost(Activation kind, std::int64_t rows, std::int64_t columns,
                                        execution::Dtype storage);
execution::Cost activation_backward_cost(Activation kind, std::int64_t rows, std::int64_t columns,
                                         execution::Dtype storage);

/// Host references; absent operands are null.
template <class S>
void activation_forward_ref(Activation kind, std::int64_t rows, std::int64_t columns, const S* x,
                            const execution::Accumulation<S>* row_weight, S* y,
                            const std::int32_t* valid_rows);
template <class S>
void activation_backward_ref(Activation kind, std::int64_t rows, std::int64_t columns, const S* dy,
                             const S* x, const execution::Accumulation<S>* row_weight, S* dx,
                             execution::Accumulation<S>* drow_weight,
                             const std::int32_t* valid_rows);

}  // namespace stowage::kernels
