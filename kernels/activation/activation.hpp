#pragma once

#include "kernels/activation/kind.hpp"
#include "kernels/operator.hpp"

namespace stowage::kernels {

/// A number of leading rows that only the device knows: element `index` of an int32 tensor of
/// `counts`, such as the last of a grouped product's offsets. Rows beyond it are neither read nor
/// written. Without counts there is no such tensor: all rows.
struct ValidRows {
  std::int64_t counts = 0, index = 0;

  const std::int32_t* of(const std::int32_t* tensor) const {
    return counts == 0 ? nullptr : tensor + index;
  }
};

/// y (rows, F) = row_weight * act(x). If it is not `weighted`, row_weight is absent: 1.
struct ActivationForward {
  static constexpr std::string_view kName = "activation_forward";
  Activation kind;
  std::int64_t rows, columns;  ///< of y
  execution::Dtype storage;
  bool weighted = false;
  ValidRows valid = {};

  template <class T>
  struct Operands {
    In<T> x;
    SumsIn<T> row_weight;
    Out<T> y;
    Of<T, const std::int32_t> valid_rows;
  };
  void each(auto&& f, auto&... o) const {
    f(in("x", storage, {rows, activation_width(kind, columns)}), o.x...);
    f(in("row_weight", execution::accumulation(storage), {rows}).when(weighted), o.row_weight...);
    f(out("y", storage, {rows, columns}), o.y...);
    f(in("valid_rows", execution::Dtype::int32, {valid.counts}).when(valid.counts > 0),
      o.valid_rows...);
  }
  STOWAGE_OPERATOR_MEMBERS;
};

/// dx = row_weight * act'(x) dy, and drow_weight[i] = sum over columns of dy * act(x). If it is not
/// `weighted`, row_weight and drow_weight are absent. Where it is `measured`, amax (1) is the
/// largest magnitude of dx, and there are no valid_rows.
struct ActivationBackward {
  static constexpr std::string_view kName = "activation_backward";
  Activation kind;
  std::int64_t rows, columns;  ///< of dy
  execution::Dtype storage;
  bool weighted = false;
  ValidRows valid = {};
  bool measured = false;

  template <class T>
  struct Operands {
    In<T> dy, x;
    SumsIn<T> row_weight;
    Out<T> dx;
    SumsOut<T> drow_weight;
    Of<T, const std::int32_t> valid_rows;
    SumsOut<T> amax;
  };
  void each(auto&& f, auto&... o) const {
    const std::int64_t width = activation_width(kind, columns);
    const execution::Dtype sums = execution::accumulation(storage);
    f(in("dy", storage, {rows, columns}), o.dy...);
    f(in("x", storage, {rows, width}), o.x...);
    f(in("row_weight", sums, {rows}).when(weighted), o.row_weight...);
    f(out("dx", storage, {rows, width}), o.dx...);
    f(out("drow_weight", sums, {rows}).when(weighted), o.drow_weight...);
    f(in("valid_rows", execution::Dtype::int32, {valid.counts}).when(valid.counts > 0),
      o.valid_rows...);
    f(out("amax", sums, {1}).when(measured), o.amax...);
  }
  std::string fault() const {
    return measured && valid.counts > 0 ? "amax is of all rows, valid_rows are some" : "";
  }
  STOWAGE_OPERATOR_MEMBERS;
};

}  // namespace stowage::kernels
