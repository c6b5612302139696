#pragma once

#include "kernels/operator.hpp"

namespace stowage::kernels {

// The linear products of all experts of a layer: rows sorted by expert, one weight matrix each.
//
// offsets (E + 1) on the device: expert e owns rows [offsets[e], offsets[e + 1]); an expert may own
// none. x (rows, K), y (rows, M), w (E, M, K). Rows from offsets[E] on are not read or written.
// Costs are 2 M K flops for each of the `routed` rows, that is of those that hold something.

/// y = x w[e]^T for the rows of each expert.
struct GroupedLinearForward {
  static constexpr std::string_view kName = "grouped_linear_forward";
  std::int64_t rows, routed, experts, outputs, inputs;  ///< E, M and K
  execution::Dtype storage;

  template <class T>
  struct Operands {
    In<T> x, w;
    Of<T, const std::int32_t> offsets;
    Out<T> y;
  };
  void each(auto&& f, auto&... o) const {
    f(in("x", storage, {rows, inputs}), o.x...);
    f(in("w", storage, {experts, outputs, inputs}), o.w...);
    f(in("offsets", execution::Dtype::int32, {experts + 1}), o.offsets...);
    f(out("y", storage, {rows, outputs}), o.y...);
  }
  STOWAGE_OPERATOR_MEMBERS;
};

/// dx = dy w[e], added to dx when `accumulate`.
struct GroupedLinearBackwardInput {
  static constexpr std::string_view kName = "grouped_linear_backward_input";
  std::int64_t rows, routed, experts, outputs, inputs;
  execution::Dtype storage;
  bool accumulate;

  template <class T>
  struct Operands {
    In<T> dy, w;
    Of<T, const std::int32_t> offsets;
    Out<T> dx;
  };
  void each(auto&& f, auto&... o) const {
    f(in("dy", storage, {rows, outputs}), o.dy...);
    f(in("w", storage, {experts, outputs, inputs}), o.w...);
    f(in("offsets", execution::Dtype::int32, {experts + 1}), o.offsets...);
    f(sum("dx", accumulate, storage, {rows, inputs}), o.dx...);
  }
  STOWAGE_OPERATOR_MEMBERS;
};

/// dw[e] = dy^T x over the rows of each expert, added to when `accumulate`. An expert without rows:
/// zero when storing, untouched when accumulating.
struct GroupedLinearBackwardWeight {
  static constexpr std::string_view kName = "grouped_linear_backward_weight";
  std::int64_t rows, routed, experts, outputs, inputs;
  execution::Dtype storage;
  bool accumulate;

  template <class T>
  struct Operands {
    In<T> dy, x;
    Of<T, const std::int32_t> offsets;
    SumsOut<T> dw;
  };
  void each(auto&& f, auto&... o) const {
    f(in("dy", storage, {rows, outputs}), o.dy...);
    f(in("x", storage, {rows, inputs}), o.x...);
    f(in("offsets", execution::Dtype::int32, {experts + 1}), o.offsets...);
    f(sum("dw", accumulate, execution::accumulation(storage), {experts, outputs, inputs}), o.dw...);
  }
  STOWAGE_OPERATOR_MEMBERS;
};

}  // namespace stowage::kernels
