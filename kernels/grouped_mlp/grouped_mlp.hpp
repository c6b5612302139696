#pragma once

#include "kernels/activation/activation.hpp"
#include "kernels/grouped_mlp/grouped_linear.hpp"

namespace stowage::kernels {

// The products of an MLP of experts with the activation in the product's epilogue. Rows, weights
// and offsets as in grouped_linear.hpp; F is the width of the activated rows, H = F or, for swiglu,
// 2 F (gate first) of the rows before it. Every stored value but drow_weight, which is summed by
// tiles, has the bits of the product and of the activation apart: what is stored is rounded before
// it is used. Costs are the product's, and those of the activation less what is not read or written
// again.

/// h (rows, H) = x (rows, D) w1[e]^T and a (rows, F) = row_weight * act(h). If it is not
/// `weighted`, row_weight is absent: 1.
struct GroupedFc1Forward {
  static constexpr std::string_view kName = "grouped_fc1_forward";
  Activation kind;
  std::int64_t rows, routed, experts, columns, width;  ///< F and D
  execution::Dtype storage;
  bool weighted;

  template <class T>
  struct Operands {
    In<T> x, w1;
    Of<T, const std::int32_t> offsets;
    SumsIn<T> row_weight;
    Out<T> h, a;
  };
  void each(auto&& f, auto&... o) const {
    const std::int64_t hidden = activation_width(kind, columns);
    f(in("x", storage, {rows, width}), o.x...);
    f(in("w1", storage, {experts, hidden, width}), o.w1...);
    f(in("offsets", execution::Dtype::int32, {experts + 1}), o.offsets...);
    f(in("row_weight", execution::accumulation(storage), {rows}).when(weighted), o.row_weight...);
    f(out("h", storage, {rows, hidden}), o.h...);
    f(out("a", storage, {rows, columns}), o.a...);
  }
  /// The product, and what is applied to it.
  GroupedLinearForward product() const;
  ActivationForward activation() const;
  STOWAGE_OPERATOR_MEMBERS;
};

/// The gradient through w2 (E, D, F) and the activation, with g = dy (rows, D) w2[e] in between:
/// dh (rows, H) = row_weight * act'(h) g, drow_weight (rows) = sum over columns of g act(h), and a
/// (rows, F) = row_weight * act(h) once more, for the gradient of w2. drow_weight is summed in an
/// order that depends on F, the rows of its expert and the row's place among them. If it is not
/// `weighted`, row_weight and drow_weight are absent.
struct GroupedFc2BackwardInput {
  static constexpr std::string_view kName = "grouped_fc2_backward_input";
  Activation kind;
  std::int64_t rows, routed, experts, columns, width;  ///< F and D
  execution::Dtype storage;
  bool weighted;

  template <class T>
  struct Operands {
    In<T> dy, w2;
    Of<T, const std::int32_t> offsets;
    SumsIn<T> row_weight;
    In<T> h;
    Out<T> dh, a;
    SumsOut<T> drow_weight, workspace;
  };
  void each(auto&& f, auto&... o) const {
    const std::int64_t hidden = activation_width(kind, columns);
    const execution::Dtype sums = execution::accumulation(storage);
    f(in("dy", storage, {rows, width}), o.dy...);
    f(in("w2", storage, {experts, width, columns}), o.w2...);
    f(in("offsets", execution::Dtype::int32, {experts + 1}), o.offsets...);
    f(in("row_weight", sums, {rows}).when(weighted), o.row_weight...);
    f(in("h", storage, {rows, hidden}), o.h...);
    f(out("dh", storage, {rows, hidden}), o.dh...);
    f(out("a", storage, {rows, columns}), o.a...);
    f(out("drow_weight", sums, {rows}).when(weighted), o.drow_weight...);
    f(workspace(workspace_bytes()), o.workspace...);
  }
  /// The product, and what is applied to it.
  GroupedLinearBackwardInput product() const;
  ActivationBackward activation() const;
  ActivationForward activation_again() const;
  std::size_t workspace_bytes() const;
  STOWAGE_OPERATOR_MEMBERS;
};

}  // namespace stowage::kernels
