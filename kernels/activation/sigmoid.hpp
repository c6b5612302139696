#pragma once

#include "kernels/operator.hpp"

namespace stowage::kernels {

/// Output gate (arXiv 2505.06708, after attention and before its projection; Qwen3-Next), element
/// by element: y = x * sigmoid(gate).
struct SigmoidGateForward {
  static constexpr std::string_view kName = "sigmoid_gate_forward";
  std::int64_t rows, columns;
  execution::Dtype storage;

  template <class T>
  struct Operands {
    In<T> x, gate;
    Out<T> y;
  };
  void each(auto&& f, auto&... o) const {
    f(in("x", storage, {rows, columns}), o.x...);
    f(in("gate", storage, {rows, columns}), o.gate...);
    f(out("y", storage, {rows, columns}), o.y...);
  }
  STOWAGE_OPERATOR_MEMBERS;
};

/// Gradient of the above: dx = dy * s and dgate = dy * x * s * (1 - s), s = sigmoid(gate). dx may
/// be the same tensor as dy.
struct SigmoidGateBackward {
  static constexpr std::string_view kName = "sigmoid_gate_backward";
  std::int64_t rows, columns;
  execution::Dtype storage;

  template <class T>
  struct Operands {
    In<T> dy, x, gate;
    Out<T> dx, dgate;
  };
  void each(auto&& f, auto&... o) const {
    f(in("dy", storage, {rows, columns}), o.dy...);
    f(in("x", storage, {rows, columns}), o.x...);
    f(in("gate", storage, {rows, columns}), o.gate...);
    f(out("dx", storage, {rows, columns}), o.dx...);
    f(out("dgate", storage, {rows, columns}), o.dgate...);
  }
  STOWAGE_OPERATOR_MEMBERS;
};

/// y = sigmoid(x) of sums: the weight of each row, such as a shared expert's, from its logit
/// (Qwen2-MoE).
struct SigmoidForward {
  static constexpr std::string_view kName = "sigmoid_forward";
  std::int64_t rows;
  execution::Dtype storage;

  template <class T>
  struct Operands {
    SumsIn<T> x;
    SumsOut<T> y;
  };
  void each(auto&& f, auto&... o) const {
    const execution::Dtype sums = execution::accumulation(storage);
    f(in("x", sums, {rows, 1}), o.x...);
    f(out("y", sums, {rows}), o.y...);
  }
  STOWAGE_OPERATOR_MEMBERS;
};

/// Gradient of the above: dx = dy * y * (1 - y).
struct SigmoidBackward {
  static constexpr std::string_view kName = "sigmoid_backward";
  std::int64_t rows;
  execution::Dtype storage;

  template <class T>
  struct Operands {
    SumsIn<T> dy, y;
    SumsOut<T> dx;
  };
  void each(auto&& f, auto&... o) const {
    const execution::Dtype sums = execution::accumulation(storage);
    f(in("dy", sums, {rows}), o.dy...);
    f(in("y", sums, {rows}), o.y...);
    f(out("dx", sums, {rows, 1}), o.dx...);
  }
  STOWAGE_OPERATOR_MEMBERS;
};

}  // namespace stowage::kernels
