#pragma once

#include "kernels/operator.hpp"

namespace stowage::kernels {

/// Sizes of the attention of one query a sequence over its cache of keys and values. Query head h
/// reads kv head h / (heads / kv_heads).
struct AttentionStepShape {
  std::int64_t heads = 0;     ///< H, a multiple of kv_heads
  std::int64_t kv_heads = 0;  ///< K
  std::int64_t head_dim = 0;  ///< P
  std::int64_t window = 0;    ///< W, positions that a cache has room for
  double scale = 0;           ///< > 0, multiplies q k^T, usually 1 / sqrt(P)

  std::int64_t width() const { return (heads + 2 * kv_heads) * head_dim; }
  std::int64_t group() const { return heads / kv_heads; }
};

/// One more token of each of B sequences through causal attention: k and v of the token are written
/// to its position of the caches, then
///
///   o = softmax(scale q K^T) V  over positions 0 to its own, for each head.
///
/// qkv (B, (H + 2 K) P): [q | k | v], normed and turned. keys, values (B, K, W, P): positions
/// behind the token's are neither read nor written. positions (B), each below W. Scores and softmax
/// in the accumulation dtype, rounded once. On a GPU: bf16 or fp32, P up to 256.
struct AttentionStep {
  static constexpr std::string_view kName = "attention_step";
  AttentionStepShape shape;
  std::int64_t sequences;
  execution::Dtype storage;

  template <class T>
  struct Operands {
    In<T> qkv;
    Of<T, const std::int32_t> positions;
    Out<T> keys, values, o;
    SumsOut<T> workspace;
  };
  void each(auto&& f, auto&... o) const {
    f(in("qkv", storage, {sequences, shape.width()}), o.qkv...);
    f(in("positions", execution::Dtype::int32, {sequences}), o.positions...);
    f(sum("keys", true, storage, {sequences, shape.kv_heads, shape.window, shape.head_dim}),
      o.keys...);
    f(sum("values", true, storage, {sequences, shape.kv_heads, shape.window, shape.head_dim}),
      o.values...);
    f(out("o", storage, {sequences, shape.heads * shape.head_dim}), o.o...);
    f(workspace(workspace_bytes()), o.workspace...);
  }
  /// For what each part of a cache gives of a head's result, with its largest score and its sum.
  std::size_t workspace_bytes() const;
  std::string fault() const;
  STOWAGE_OPERATOR_MEMBERS;
};

}  // namespace stowage::kernels
