#pragma once

#include <cstdint>

#include "execution/op.hpp"

namespace stowage::kernels {

/// Products of a linear layer without bias, y = x w^T. Weights are stored (outputs, inputs), as in
/// Megatron and PyTorch. Sums are kept in the accumulation type and rounded once.

/// y (n, M) = x (n, K) w (M, K)^T. y has the storage dtype of x and w, or its accumulation dtype
/// (router logits).
void linear_forward(execution::Queue& queue, const execution::View& x, const execution::View& w,
                    const execution::View& y);

/// dx (n, K) = dy (n, M) w (M, K), or dx += when `accumulate`. dy has the storage dtype of w and
/// dx, or its accumulation dtype.
void linear_backward_input(execution::Queue& queue, const execution::View& dy,
                           const execution::View& w, const execution::View& dx, bool accumulate);

/// dw (M, K) in the accumulation dtype = dy (n, M)^T x (n, K), or dw += when `accumulate`. dy has
/// the storage dtype of x, or its accumulation dtype.
void linear_backward_weight(execution::Queue& queue, const execution::View& dy,
                            const execution::View& x, const execution::View& dw, bool accumulate);

/// Both at once: dx and dw as by the two above. With dy in the accumulation dtype of bf16, at most
/// 128 outputs, a small dw and rows of whole 16 bytes a Hopper GPU reads x once and dx once, and
/// leaves 2^-17 of dy out of dx, which is rounded to 2^-9 (mixed_backward.hpp).
void linear_backward(execution::Queue& queue, const execution::View& dy, const execution::View& x,
                     const execution::View& w, const execution::View& dx, bool accumulate_dx,
                     const execution::View& dw, bool accumulate_dw);

/// 2 n M K flops; each operand once through memory. `result` is the dtype of y.
execution::Cost linear_forward_cost(std::int64_t rows, std::int64_t outputs, std::int64_t inputs,
                                    execution::Dtype storage, execution::Dtype result);
execution::Cost linear_backward_input_cost(std::int64_t rows, std::int64_t outputs,
                                           std::int64_t inputs, execution::Dtype storage,
                                           execution::Dtype gradient, bool accumulate);
execution::Cost linear_backward_weight_cost(std::int64_t rows, std::int64_t outputs,
                                            std::int64_t inputs, execution::Dtype storage,
                                            execution::Dtype gradient, bool accumulate);
execution::Cost linear_backward_cost(std::int64_t rows, std::int64_t outputs, std::int64_t inputs,
                                     execution::Dtype storage, execution::Dtype gradient,
                                     bool accumulate_dx, bool accumulate_dw);

/// Host references: S storage of x and w, Y of y or dy (S or Accumulation<S>). Row-major, dense.
template <class S, class Y>
void linear_forward_ref(std::int64_t rows, std::int64_t outputs, std::int64_t inputs, const S* x,
                        const S* w, Y* y);
template <class S, class Y>
void linear_backward_input_ref(std::int64_t rows, std::int64_t outputs, std::int64_t inputs,
                               const Y* dy, const S* w, S* dx, bool accumulate);
template <class S, class Y>
void linear_backward_weight_ref(std::int64_t rows, std::int64_t outputs, std::int64_t inputs,
                                const Y* dy, const S* x, execution::Accumulation<S>* dw,
                                bool accumulate);

}  // namespace stowage::kernels
