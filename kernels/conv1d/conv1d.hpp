#pragma once

#include "kernels/operator.hpp"

namespace stowage::kernels {

/// Widths W of the convolution of a Mamba-2 mixer (arXiv 2405.21060): its taps.
inline constexpr std::int64_t kConv1dMinWidth = 2, kConv1dMaxWidth = 4;
/// Tokens before a segment that are handed to it, whatever the width: taps that a narrower
/// convolution lacks are zero.
inline constexpr std::int64_t kConv1dHalo = kConv1dMaxWidth - 1;

/// Causal depthwise convolution of width W, 2 to 4, and SiLU, for each channel c:
///
///   y_t = silu(b + sum_{k=0..W-1} w_k x_{t-W+1+k}),  x_s = 0 for s in another document than t
///
/// so w[:, W - 1] is the tap of the current token. x: C columns of a wider tensor (n, *); seq_idx:
/// the document of each token, non-decreasing. Summed in the accumulation dtype, rounded once.
///
/// With a `halo`, tokens of the first document lie before these, on another rank or in another
/// segment: halo (3, C) is x of the three tokens before the first, zero where they are of another
/// document. If it is not `biased`, there is no b.
struct Conv1dForward {
  static constexpr std::string_view kName = "conv1d_silu_forward";
  std::int64_t tokens, channels, width;
  execution::Dtype storage;
  bool halo = false, biased = true;

  template <class T>
  struct Operands {
    InColumns<T> x;
    In<T> w, b;
    Of<T, const std::int32_t> seq_idx;
    Out<T> y;
    In<T> halo;
  };
  void each(auto&& f, auto&... o) const {
    f(in("x", storage, {tokens, channels}), o.x...);
    f(in("w", storage, {channels, width}), o.w...);
    f(in("b", storage, {channels}).when(biased), o.b...);
    f(in("seq_idx", execution::Dtype::int32, {tokens}), o.seq_idx...);
    f(out("y", storage, {tokens, channels}), o.y...);
    f(in("halo", storage, {kConv1dHalo, channels}).when(halo), o.halo...);
  }
  std::string fault() const;
  STOWAGE_OPERATOR_MEMBERS;
};

/// Gradient of the above; the sum before SiLU is computed again from x. dx is stored; dw and db are
/// stored or, with `accumulate`, added to. dhalo: the share of these tokens.
struct Conv1dBackward {
  static constexpr std::string_view kName = "conv1d_silu_backward";
  std::int64_t tokens, channels, width;
  execution::Dtype storage;
  bool accumulate;
  bool halo = false, biased = true;

  template <class T>
  struct Operands {
    In<T> dy;
    InColumns<T> x;
    In<T> w, b;
    Of<T, const std::int32_t> seq_idx;
    OutColumns<T> dx;
    SumsOut<T> dw, db, workspace;
    In<T> halo;
    Out<T> dhalo;
  };
  void each(auto&& f, auto&... o) const {
    const execution::Dtype sums = execution::accumulation(storage);
    f(in("dy", storage, {tokens, channels}), o.dy...);
    f(in("x", storage, {tokens, channels}), o.x...);
    f(in("w", storage, {channels, width}), o.w...);
    f(in("b", storage, {channels}).when(biased), o.b...);
    f(in("seq_idx", execution::Dtype::int32, {tokens}), o.seq_idx...);
    f(out("dx", storage, {tokens, channels}), o.dx...);
    f(sum("dw", accumulate, sums, {channels, width}), o.dw...);
    f(sum("db", accumulate, sums, {channels}).when(biased), o.db...);
    f(workspace(workspace_bytes()), o.workspace...);
    f(in("halo", storage, {kConv1dHalo, channels}).when(halo), o.halo...);
    f(out("halo gradient", storage, {kConv1dHalo, channels}).when(halo), o.dhalo...);
  }
  /// For the partial dw and db of each block of tokens, the same at any width.
  std::size_t workspace_bytes() const;
  std::string fault() const;
  STOWAGE_OPERATOR_MEMBERS;
};

}  // namespace stowage::kernels
