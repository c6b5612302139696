#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "execution/op.hpp"
#include "kernels/attention/attention_heads.hpp"
#include "kernels/attention/attention_way.hpp"
#include "kernels/matrix.hpp"

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
};

/// The heads of one matrix inside a tensor, read or written in place: element p of head h of token
/// t lies `first + t * strides.row + h * strides.head + p` elements from the tensor's first, and of
/// sequence b of equal ones, t counted in it, `b * strides.batch` more.
struct AttentionHeads {
  execution::View view;
  std::int64_t first = 0;
  HeadStrides strides;

  /// Heads side by side in some columns.
  static AttentionHeads of(const Columns& columns, std::int64_t head_dim) {
    return {columns.view, columns.first, {columns.width(), head_dim, 0}};
  }
};

/// Attention within documents: o = softmax(scale q k^T + mask) v for each head.
///
/// q (H*P), k and v (K*P): columns of wider tensors (n, *), usually of one (n, (H + 2K) P); o (n,
/// H*P); all of one storage dtype. With fewer queries than tokens (AttentionShape::first_query) a
/// row has the bits that a call with all of them gives it, on the host if the first row and the
/// number of rows are multiples of 64. lse (H, n) in the accumulation dtype: natural logarithm of
/// each row's sum of exp(scale q k^T). cu_seqlens (C + 1) int32: document starts; seq_idx (n)
/// int32: the document of each token, non-decreasing, C for the tail, a document of its own.
/// Scores and softmax in the accumulation dtype. On a GPU: bf16 or fp32, P up to 256; bf16 with P =
/// 64 or 128, first elements and strides at multiples of 8, runs on Hopper's tensor cores. All rows
/// must be finite, those of the tail too.
void attention_forward(execution::Queue& queue, const AttentionShape& shape, const Columns& q,
                       const Columns& k, const Columns& v, const execution::View& cu_seqlens,
                       const execution::View& seq_idx, const execution::View& o,
                       const execution::View& lse, const execution::View& workspace);

/// The same with free strides: heads and sequences may be interleaved with others in their tensors.
void attention_forward(execution::Queue& queue, const AttentionShape& shape,
                       const AttentionHeads& q, const AttentionHeads& k, const AttentionHeads& v,
                       const execution::View& cu_seqlens, const execution::View& seq_idx,
                       const AttentionHeads& o, const execution::View& lse,
                       const execution::View& workspace);

/// Room for the order in which a GPU takes the documents, of which there are up to `documents` = C.
/// @param tokens n, here and for the backward, whatever the number of queries
std::size_t attention_forward_workspace_bytes(const AttentionShape& shape, std::int64_t tokens,
                                              std::int64_t documents, execution::Dtype storage);

/// Matrices are Columns, or AttentionHeads for free strides.
template <class M>
struct AttentionBackwardOperands {
  M d_o;                                ///< (n, H*P)
  M q, k, v, o;                         ///< as in the forward
  execution::View lse;                  ///< (H, n), as in the forward
  execution::View cu_seqlens, seq_idx;  ///< as in the forward
  M dq, dk, dv;                         ///< as q, k, v
  execution::View workspace;
};

/// Gradients of the above for d_o, from q, k, v and the forward's o and lse. dq, dk, dv are stored;
/// dk and dv are summed over the heads that share them. Both may be of the accumulation dtype, for
/// shares that are still to be summed: nothing is rounded then.
void attention_backward(execution::Queue& queue, const AttentionShape& shape,
                        const AttentionBackwardOperands<Columns>& views);

/// The same with free strides.
void attention_backward(execution::Queue& queue, const AttentionShape& shape,
                        const AttentionBackwardOperands<AttentionHeads>& views);

/// Room for rowsum(d_o * o) of each head and token, and on a GPU for the gradients of the scores of
/// some heads: 2 bytes a pair, at most kStoredGradientBytes (attention_layout.hpp).
std::size_t attention_backward_workspace_bytes(const AttentionShape& shape, std::int64_t tokens,
                                               std::int64_t documents, execution::Dtype storage);

/// Query-key pairs that are not masked, for documents of these lengths.
std::int64_t attention_pairs(std::span<const std::int64_t> lengths, bool causal);

/// Flops of 2 (forward) and 5 (backward) products over `pairs` unmasked pairs.
execution::Cost attention_forward_cost(const AttentionShape& shape, std::int64_t tokens,
                                       std::int64_t pairs, execution::Dtype storage);
execution::Cost attention_backward_cost(const AttentionShape& shape, std::int64_t tokens,
                                        std::int64_t pairs, execution::Dtype storage);

/// Queries, keys and values in host memory.
template <class S>
struct AttentionInputs {
  HeadMatrix<const S> q, k, v;
  const std::int32_t* seq_idx = nullptr;  ///< null: every sequence is one document
};

/// Host references: blocks of queries by blocks of keys with a running softmax (FlashAttention-2,
/// arXiv 2307.08691, algorithms 1 and 2).
template <class S>
void attention_forward_ref(const AttentionShape& shape, const AttentionInputs<S>& inputs,
                           const HeadMatrix<S>& o, execution::Accumulation<S>* lse);
template <class S, class G>
void attention_backward_ref(const AttentionShape& shape, const AttentionInputs<S>& inputs,
                            const HeadMatrix<const S>& d_o, const HeadMatrix<const S>& o,
                            const execution::Accumulation<S>* lse, const HeadMatrix<S>& dq,
                            const HeadMatrix<G>& dk, const HeadMatrix<G>& dv,
                            execution::Accumulation<S>* workspace);

}  // namespace stowage::kernels
