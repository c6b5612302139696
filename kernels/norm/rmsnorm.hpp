#pragma once

#include "kernels/operator.hpp"

namespace stowage::kernels {

/// Residual sum and RMSNorm (Zhang and Sennrich, arXiv 1910.07467) of the rows of x (n, D), fused:
///
///   sum = round(x + delta),  rstd = 1 / sqrt(mean(sum^2) + eps),  y = sum * rstd * w
///
/// with 1 + w in place of w if it is `zero_centred` (Gemma, Qwen3-Next): a weight near 0 keeps
/// digits that 1 + w loses in bf16.
///
/// The norm is of sum as rounded to storage, so it can be repeated from the stored sum: without
/// `residual` there are neither delta nor sum, and x stands for the sum. sum may be the same tensor
/// as x or delta. Where it is `measured`, amax (1) is the largest magnitude of y.
struct AddRmsnormForward {
  static constexpr std::string_view kName = "add_rmsnorm_forward";
  std::int64_t rows, width;
  execution::Dtype storage;
  bool residual;
  double eps;
  bool measured = false;
  bool zero_centred = false;

  template <class T>
  struct Operands {
    In<T> x, delta, w;
    Out<T> sum, y;
    SumsOut<T> rstd, amax;
  };
  void each(auto&& f, auto&... o) const {
    f(in("x", storage, {rows, width}), o.x...);
    f(in("delta", storage, {rows, width}).when(residual), o.delta...);
    f(in("w", storage, {width}), o.w...);
    f(out("sum", storage, {rows, width}).when(residual), o.sum...);
    f(out("y", storage, {rows, width}), o.y...);
    f(out("rstd", execution::accumulation(storage), {rows}), o.rstd...);
    f(out("amax", execution::accumulation(storage), {1}).when(measured), o.amax...);
  }
  STOWAGE_OPERATOR_MEMBERS;
};

/// Gradient of the above, with x the sum: with h = x * rstd and g = dy * w, or dy * (1 + w),
///
///   dx = dresidual + rstd * (g - h * mean(g * h)),  dw = sum over rows of dy * h
///
/// dresidual, the gradient that arrives at the sum along the residual stream, is there with
/// `residual`; dx may be the same tensor. `accumulate` adds to dw. Where it is `measured`, amax (1)
/// is the largest magnitude of dx.
struct RmsnormBackward {
  static constexpr std::string_view kName = "rmsnorm_backward";
  std::int64_t rows, width;
  execution::Dtype storage;
  bool residual, accumulate;
  bool measured = false;
  bool zero_centred = false;

  template <class T>
  struct Operands {
    In<T> dy, x, w;
    SumsIn<T> rstd;
    In<T> dresidual;
    Out<T> dx;
    SumsOut<T> dw, workspace, amax;
  };
  void each(auto&& f, auto&... o) const {
    f(in("dy", storage, {rows, width}), o.dy...);
    f(in("x", storage, {rows, width}), o.x...);
    f(in("w", storage, {width}), o.w...);
    f(in("rstd", execution::accumulation(storage), {rows}), o.rstd...);
    f(in("dresidual", storage, {rows, width}).when(residual), o.dresidual...);
    f(out("dx", storage, {rows, width}), o.dx...);
    f(sum("dw", accumulate, execution::accumulation(storage), {width}), o.dw...);
    f(workspace(workspace_bytes()), o.workspace...);
    f(out("amax", execution::accumulation(storage), {1}).when(measured), o.amax...);
  }
  /// For one partial dw of each block of rows.
  std::size_t workspace_bytes() const;
  STOWAGE_OPERATOR_MEMBERS;
};

}  // namespace stowage::kernels
