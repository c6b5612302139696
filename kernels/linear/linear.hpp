#pragma once

#include "kernels/operator.hpp"

namespace stowage::kernels {

/// Products of a linear layer without bias, y = x w^T. Weights are stored (outputs, inputs), as in
/// Megatron and PyTorch. Sums are kept in the accumulation type and rounded once. y and dy have the
/// storage dtype, or its accumulation dtype (router logits): `result`. Costs are 2 rows outputs
/// inputs flops; each operand once through memory.

struct LinearForward {
  static constexpr std::string_view kName = "linear_forward";
  std::int64_t rows, outputs, inputs;
  execution::Dtype storage, result;

  template <class T>
  struct Operands {
    InRows<T> x, w;
    RowsOfType<T, Either> y;
  };
  void each(auto&& f, auto&... o) const {
    f(in("x", storage, {rows, inputs}), o.x...);
    f(in("w", storage, {outputs, inputs}), o.w...);
    f(out("y", result, {rows, outputs}), o.y...);
  }
  std::string fault() const;
  STOWAGE_OPERATOR_MEMBERS;
};

/// dx = dy w, or dx += when `accumulate`.
struct LinearBackwardInput {
  static constexpr std::string_view kName = "linear_backward_input";
  std::int64_t rows, outputs, inputs;
  execution::Dtype storage, result;
  bool accumulate;

  template <class T>
  struct Operands {
    RowsOfType<T, const Either> dy;
    In<T> w;
    OutRows<T> dx;
  };
  void each(auto&& f, auto&... o) const {
    f(in("dy", result, {rows, outputs}), o.dy...);
    f(in("w", storage, {outputs, inputs}), o.w...);
    f(sum("dx", accumulate, storage, {rows, inputs}), o.dx...);
  }
  std::string fault() const;
  STOWAGE_OPERATOR_MEMBERS;
};

/// dw = dy^T x, or dw += when `accumulate`.
struct LinearBackwardWeight {
  static constexpr std::string_view kName = "linear_backward_weight";
  std::int64_t rows, outputs, inputs;
  execution::Dtype storage, result;
  bool accumulate;

  template <class T>
  struct Operands {
    Of<T, const Either> dy;
    In<T> x;
    SumsOut<T> dw;
  };
  void each(auto&& f, auto&... o) const {
    f(in("dy", result, {rows, outputs}), o.dy...);
    f(in("x", storage, {rows, inputs}), o.x...);
    f(sum("dw", accumulate, execution::accumulation(storage), {outputs, inputs}), o.dw...);
  }
  std::string fault() const;
  STOWAGE_OPERATOR_MEMBERS;
};

/// Both at once. With dy in the accumulation dtype of bf16, at most 128 outputs, a small dw and
/// rows of whole 16 bytes a Hopper GPU reads x once and dx once, and leaves 2^-17 of dy out of dx,
/// which is rounded to 2^-9 (mixed_backward.hpp).
struct LinearBackward {
  static constexpr std::string_view kName = "linear_backward";
  std::int64_t rows, outputs, inputs;
  execution::Dtype storage, result;
  bool accumulate_dx, accumulate_dw;

  template <class T>
  struct Operands {
    Of<T, const Either> dy;
    In<T> x, w;
    Out<T> dx;
    SumsOut<T> dw;
  };
  void each(auto&& f, auto&... o) const {
    f(in("dy", result, {rows, outputs}), o.dy...);
    f(in("x", storage, {rows, inputs}), o.x...);
    f(in("w", storage, {outputs, inputs}), o.w...);
    f(sum("dx", accumulate_dx, storage, {rows, inputs}), o.dx...);
    f(sum("dw", accumulate_dw, execution::accumulation(storage), {outputs, inputs}), o.dw...);
  }
  LinearBackwardInput input() const {
    return {rows, outputs, inputs, storage, result, accumulate_dx};
  }
  LinearBackwardWeight weight() const {
    return {rows, outputs, inputs, storage, result, accumulate_dw};
  }
  std::string fault() const { return input().fault(); }
  STOWAGE_OPERATOR_MEMBERS;
};

}  // namespace stowage::kernels
