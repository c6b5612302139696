#pragma once

#include <cstddef>
#include <cstdint>

#include "execution/op.hpp"

namespace stowage::kernels {

/// Residual sum and RMSNorm (Zhang and Sennrich, arXiv 1910.07467) of the rows of x (n, D), fused:
///
///   sum = round(x + delta),  rstd = 1 / sqrt(mean(sum^2) + eps),  y = sum * rstd * w
///
/// delta (n, D) may be absent, then sum may be absent too and stands for x. w (D). The norm is of
/// sum as rounded to storage, so it can be repeated from the stored sum. rstd (n) has the
/// accumulation dtype, all others the storage dtype. sum may be the same tensor as x or delta.
void add_rmsnorm_forward(execution::Queue& queue, const execution::View& x,
                         const execution::View& delta, const execution::View& w,
                         const execution::View& sum, const execution::View& y,
                         const execution::View& rstd, double eps);

/// Gradient of the above, with x the sum: with h = x * rstd and g = dy * w
///
///   dx = dresidual + rstd * (g - h * mean(g * h)),  dw = sum over rows of dy * h
///
/// dresidual (n, D), the gradient that arrives at the sum along the residual stream, may be absent;
/// dx may be the same tensor. dw (D) has the accumulation dtype; `accumulate` adds to it.
void rmsnorm_backward(execution::Queue& queue, const execution::View& dy, const execution::View& x,
                      const execution::View& w, const execution::View& rstd,
                      const execution::View& dresidual, const execution::View& dx,
                      const execution::View& dw, const execution::View& workspace, bool accumulate);

/// Room for one partial dw per block of rows.
std::size_t rmsnorm_backward_workspace_bytes(std::int64_t rows, std::int64_t width,
                                             execution::Dtype storage);

/// `residual`: with delta and sum.
execution::Cost add_rmsnorm_forward_cost(std::int64_t rows, std::int64_t width,
                                         execution::Dtype storage, bool residual);
/// `residual`: with dresidual.
execution::Cost rmsnorm_backward_cost(std::int64_t rows, std::int64_t width,
                                      execution::Dtype storage, bool residual);

/// Host references; absent operands are null.
template <class S>
void add_rmsnorm_forward_ref(std::int64_t rows, std::int64_t width, const S* x, const S* delta,
                             const S* w, S* sum, S* y, execution::Accumulation<S>* rstd,
                             double eps);
template <class S>
void rmsnorm_backward_ref(std::int64_t rows, std::int64_t width, const S* dy, const S* x,
                          const S* w, const execution::Accumulation<S>* rstd, const S* dresidual,
                          S* dx, execution::Accumulation<S>* dw,
                          execution::Accumulation<S>* workspace, bool accumulate);

}  // namespace stowage::kernels
