#pragma once

#include "kernels/operator.hpp"

namespace stowage::kernels {

/// The gated norm of a gated DeltaNet mixer (arXiv 2412.06464; Qwen3-Next's RMSNormGated), for each
/// of H heads of width P:
///
///   out = y * rstd * w * silu(z),  rstd = 1 / sqrt(mean(y^2) + eps)
///
/// The gate comes after the norm, and all heads share w (P). z are columns of a wider tensor.
struct GatedHeadNormForward {
  static constexpr std::string_view kName = "gated_head_norm_forward";
  std::int64_t tokens, heads, head_dim;
  execution::Dtype storage;
  double eps;

  template <class T>
  struct Operands {
    In<T> y;
    InColumns<T> z;
    In<T> w;
    Out<T> out;
  };
  void each(auto&& f, auto&... o) const {
    f(in("y", storage, {tokens, heads * head_dim}), o.y...);
    f(in("z", storage, {tokens, heads * head_dim}), o.z...);
    f(in("w", storage, {head_dim}), o.w...);
    f(out("out", storage, {tokens, heads * head_dim}), o.out...);
  }
  STOWAGE_OPERATOR_MEMBERS;
};

/// Gradient of the above; rstd is computed again from y. `accumulate` adds to dw.
struct GatedHeadNormBackward {
  static constexpr std::string_view kName = "gated_head_norm_backward";
  std::int64_t tokens, heads, head_dim;
  execution::Dtype storage;
  double eps;
  bool accumulate;

  template <class T>
  struct Operands {
    In<T> dout, y;
    InColumns<T> z;
    In<T> w;
    Out<T> dy;
    OutColumns<T> dz;
    SumsOut<T> dw, workspace;
  };
  void each(auto&& f, auto&... o) const {
    const std::int64_t width = heads * head_dim;
    f(in("dout", storage, {tokens, width}), o.dout...);
    f(in("y", storage, {tokens, width}), o.y...);
    f(in("z", storage, {tokens, width}), o.z...);
    f(in("w", storage, {head_dim}), o.w...);
    f(out("dy", storage, {tokens, width}), o.dy...);
    f(out("dz", storage, {tokens, width}), o.dz...);
    f(sum("dw", accumulate, execution::accumulation(storage), {head_dim}), o.dw...);
    f(workspace(workspace_bytes()), o.workspace...);
  }
  /// For partial sums of dw.
  std::size_t workspace_bytes() const;
  STOWAGE_OPERATOR_MEMBERS;
};

}  // namespace stowage::kernels
