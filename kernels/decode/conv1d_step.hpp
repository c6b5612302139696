#pragma once

#include "kernels/conv1d/conv1d.hpp"

namespace stowage::kernels {

/// One more token of each of B sequences through the convolution of Conv1dForward:
///
///   y = silu(b + sum_{k=0..W-2} w_k rows_k + w_{W-1} x),  then rows = (rows_1, ..., rows_{W-2}, x)
///
/// rows (B, W - 1, C): x of the W - 1 tokens before, zero where a sequence has none. Of a sequence
/// whose position is 0 they are taken for zero, whatever they hold. x: C columns of a wider tensor.
struct Conv1dStep {
  static constexpr std::string_view kName = "conv1d_silu_step";
  std::int64_t sequences, channels, width;
  execution::Dtype storage;
  bool biased = true;

  template <class T>
  struct Operands {
    InColumns<T> x;
    In<T> w, b;
    Of<T, const std::int32_t> positions;
    Out<T> rows, y;
  };
  void each(auto&& f, auto&... o) const {
    f(in("x", storage, {sequences, channels}), o.x...);
    f(in("w", storage, {channels, width}), o.w...);
    f(in("b", storage, {channels}).when(biased), o.b...);
    f(in("positions", execution::Dtype::int32, {sequences}), o.positions...);
    f(sum("rows", true, storage, {sequences, width - 1, channels}), o.rows...);
    f(out("y", storage, {sequences, channels}), o.y...);
  }
  std::string fault() const {
    const bool served = width >= kConv1dMinWidth && width <= kConv1dMaxWidth;
    return served ? "" : "w has neither 2, 3 nor 4 taps";
  }
  STOWAGE_OPERATOR_MEMBERS;
};

}  // namespace stowage::kernels
