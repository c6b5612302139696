#pragma once

#include "kernels/operator.hpp"

namespace stowage::kernels {

/// What a fused projection has: H query heads, K key heads and K value heads of width P.
struct HeadSizes {
  std::int64_t heads, kv_heads, head_dim;

  constexpr std::int64_t all() const { return heads + 2 * kv_heads; }
  constexpr std::int64_t width() const { return all() * head_dim; }
};

/// RMSNorm of each query and key head of a fused projection (Qwen3, arXiv 2505.09388 section 2;
/// after arXiv 2302.05442 section 2):
///
///   y = x * rstd * w,  rstd = 1 / sqrt(mean(x^2) + eps),  a mean for each head of each token
///
/// with w = q_weight for queries and k_weight for keys, or 1 + w if these are `zero_centred`;
/// values are copied. `out` may be `in`.
struct HeadRmsnormForward {
  static constexpr std::string_view kName = "head_rmsnorm_forward";
  std::int64_t tokens;
  HeadSizes sizes;
  execution::Dtype storage;
  double eps;
  bool zero_centred = false;

  template <class T>
  struct Operands {
    In<T> in, q_weight, k_weight;
    Out<T> out;
  };
  void each(auto&& f, auto&... o) const {
    f(in("in", storage, {tokens, sizes.width()}), o.in...);
    f(in("q_weight", storage, {sizes.head_dim}), o.q_weight...);
    f(in("k_weight", storage, {sizes.head_dim}), o.k_weight...);
    f(out("out", storage, {tokens, sizes.width()}), o.out...);
  }
  STOWAGE_OPERATOR_MEMBERS;
};

/// Gradient of the above; rstd is computed again from `in`. din may be dout. With `accumulate` the
/// gradients of the weights are added to.
struct HeadRmsnormBackward {
  static constexpr std::string_view kName = "head_rmsnorm_backward";
  std::int64_t tokens;
  HeadSizes sizes;
  execution::Dtype storage;
  double eps;
  bool accumulate;
  bool zero_centred = false;

  template <class T>
  struct Operands {
    In<T> dout, in, q_weight, k_weight;
    Out<T> din;
    SumsOut<T> dq_weight, dk_weight, workspace;
  };
  void each(auto&& f, auto&... o) const {
    const execution::Dtype sums = execution::accumulation(storage);
    f(in("dout", storage, {tokens, sizes.width()}), o.dout...);
    f(in("in", storage, {tokens, sizes.width()}), o.in...);
    f(in("q_weight", storage, {sizes.head_dim}), o.q_weight...);
    f(in("k_weight", storage, {sizes.head_dim}), o.k_weight...);
    f(out("din", storage, {tokens, sizes.width()}), o.din...);
    f(sum("dq_weight", accumulate, sums, {sizes.head_dim}), o.dq_weight...);
    f(sum("dk_weight", accumulate, sums, {sizes.head_dim}), o.dk_weight...);
    f(workspace(workspace_bytes()), o.workspace...);
  }
  /// For partial sums of the weights' gradients.
  std::size_t workspace_bytes() const;
  STOWAGE_OPERATOR_MEMBERS;
};

}  // namespace stowage::kernels
