#pragma once

#include <span>

#include "kernels/attention/attention_heads.hpp"
#include "kernels/attention/attention_way.hpp"

namespace stowage::kernels {

/// Sizes and options of grouped-query attention. Query head h reads kv head h / (heads / kv_heads).
struct AttentionShape {
  std::int64_t heads = 0;     ///< H, a multiple of kv_heads
  std::int64_t kv_heads = 0;  ///< K
  std::int64_t head_dim = 0;  ///< P
  bool causal = true;         ///< token i of a document sees its tokens 0 .. i, else all of them
  double scale = 0;           ///< > 0, multiplies q k^T, usually 1 / sqrt(P)
  /// Unmasked query-key pairs that a batch may have, as far as is known; 0: one document of all
  /// tokens. Plans room and order on a GPU; only the last bits of dq may depend on it.
  std::int64_t pairs = 0;
  /// > 0: all tokens are sequences of this length, each one document, which may lie apart (batch
  /// strides); cu_seqlens and seq_idx are unread and may be absent.
  std::int64_t length = 0;
  /// The queries are m rows from this one on of the n tokens that k, v and seq_idx have: q, o, d_o
  /// and dq have m rows, lse (H, m). dk and dv, of n rows, then have these queries' share.
  std::int64_t first_query = 0;
  QueryGradient query_gradient = QueryGradient::by_shape;

  HeadExtents query_extents(std::int64_t rows) const { return extents(rows, heads); }
  HeadExtents key_extents(std::int64_t rows) const { return extents(rows, kv_heads); }
  std::string fault(std::int64_t tokens, std::int64_t queries) const;

 private:
  HeadExtents extents(std::int64_t rows, std::int64_t of) const {
    return {length > 0 ? rows / length : 1, length > 0 ? length : rows, of, head_dim};
  }
};

/// Attention within documents: o = softmax(scale q k^T + mask) v for each head.
///
/// q, o (m, H, P), k and v (n, K, P): heads inside tensors. With fewer queries than tokens
/// (AttentionShape::first_query) a row has the bits that a call with all of them gives it, on the
/// host if the first row and the number of rows are multiples of 64. lse (H, m): natural logarithm
/// of each row's sum of exp(scale q k^T). Scores and softmax in the accumulation dtype. On a GPU:
/// bf16 or fp32, P up to 256; bf16 with P = 64, 128 or 256, first elements and strides at multiples
/// of 8, runs on Hopper's tensor cores. All rows must be finite, those of the tail too.
struct AttentionForward {
  static constexpr std::string_view kName = "attention_forward";
  AttentionShape shape;
  std::int64_t tokens, queries, documents;  ///< n, m, and C, the most that there may be
  execution::Dtype storage;
  std::int64_t scores = 0;  ///< unmasked (query, key) pairs of a head, for the cost

  template <class T>
  struct Operands {
    InHeads<T> q, k, v;
    Of<T, const std::int32_t> cu_seqlens;  ///< (C + 1): document starts
    Of<T, const std::int32_t> seq_idx;  ///< the document of each token, non-decreasing, C for the
                                        ///< tail, a document of its own
    OutHeads<T> o;
    SumsOut<T> lse, workspace;
  };
  void each(auto&& f, auto&... o) const {
    const bool packed = shape.length == 0;
    f(in("q", storage, shape_of(shape.query_extents(queries))), o.q...);
    f(in("k", storage, shape_of(shape.key_extents(tokens))).as_own_use(), o.k...);
    f(in("v", storage, shape_of(shape.key_extents(tokens))), o.v...);
    f(in("cu_seqlens", execution::Dtype::int32, {documents + 1}).when(packed), o.cu_seqlens...);
    f(in("seq_idx", execution::Dtype::int32, {tokens}).when(packed), o.seq_idx...);
    f(out("o", storage, shape_of(shape.query_extents(queries))), o.o...);
    f(out("lse", execution::accumulation(storage), {shape.heads, queries}), o.lse...);
    f(workspace(workspace_bytes()), o.workspace...);
  }
  /// For the order in which a GPU takes the documents.
  std::size_t workspace_bytes() const;
  std::string fault() const { return shape.fault(tokens, queries); }
  /// Flops of 2 products over the scores. The reference takes blocks of queries by blocks of keys
  /// with a running softmax (FlashAttention-2, arXiv 2307.08691, algorithms 1 and 2).
  STOWAGE_OPERATOR_MEMBERS;
};

/// Gradients of the above for d_o, from q, k, v and the forward's o and lse. dq, dk, dv are stored;
/// dk and dv are summed over the heads that share them. If they are `wide` they are of the
/// accumulation dtype, for shares that are still to be summed: nothing is rounded then.
struct AttentionBackward {
  static constexpr std::string_view kName = "attention_backward";
  AttentionShape shape;
  std::int64_t tokens, queries, documents;
  execution::Dtype storage;
  bool wide = false;
  std::int64_t scores = 0;

  template <class T>
  struct Operands {
    InHeads<T> d_o, q, k, v, o;
    SumsIn<T> lse;
    Of<T, const std::int32_t> cu_seqlens, seq_idx;
    SumsOut<T> workspace;
    OutHeads<T> dq;
    HeadsOfType<T, Either> dk, dv;
  };
  void each(auto&& f, auto&... o) const {
    const bool packed = shape.length == 0;
    const execution::Dtype keys = wide ? execution::accumulation(storage) : storage;
    f(in("d_o", storage, shape_of(shape.query_extents(queries))), o.d_o...);
    f(in("q", storage, shape_of(shape.query_extents(queries))), o.q...);
    f(in("k", storage, shape_of(shape.key_extents(tokens))).as_own_use(), o.k...);
    f(in("v", storage, shape_of(shape.key_extents(tokens))), o.v...);
    f(in("o", storage, shape_of(shape.query_extents(queries))), o.o...);
    f(in("lse", execution::accumulation(storage), {shape.heads, queries}), o.lse...);
    f(in("cu_seqlens", execution::Dtype::int32, {documents + 1}).when(packed), o.cu_seqlens...);
    f(in("seq_idx", execution::Dtype::int32, {tokens}).when(packed), o.seq_idx...);
    f(workspace(workspace_bytes()), o.workspace...);
    f(out("dq", storage, shape_of(shape.query_extents(queries))), o.dq...);
    f(out("dk", keys, shape_of(shape.key_extents(tokens))), o.dk...);
    f(out("dv", keys, shape_of(shape.key_extents(tokens))), o.dv...);
  }
  /// For rowsum(d_o * o) of each head and token, and on a GPU for the gradients of the scores of
  /// some heads: 2 bytes a pair, at most kStoredGradientBytes (attention_layout.hpp).
  std::size_t workspace_bytes() const;
  std::string fault() const { return shape.fault(tokens, queries); }
  /// Flops of 5 products over the scores.
  STOWAGE_OPERATOR_MEMBERS;
};

/// Query-key pairs that are not masked, for documents of these lengths.
std::int64_t attention_pairs(std::span<const std::int64_t> lengths, bool causal);

}  // namespace stowage::kernels
