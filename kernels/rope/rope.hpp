#pragma once

#include <cstdint>

#include "execution/op.hpp"
#include "kernels/matrix.hpp"
#include "kernels/rope/rope_frequencies.hpp"

namespace stowage::kernels {

/// Rotary positions (RoFormer, arXiv 2104.09864) on the queries and keys of a fused projection.
///
/// in, out (n, (H + 2K) P), one storage dtype: H query heads, K key heads, K value heads. Dimension
/// i < P/2 of a query or key head is paired with i + P/2 (the half-split of GPT-NeoX) and rotated
/// by the angle position * frequency(i); the position counts from the start of the token's
/// document. Values are copied. cu_seqlens (C + 1) int32: document starts; seq_idx (n) int32: the
/// document of each token (C for the tail). The rows are the tokens from `first_token` on of those
/// that cu_seqlens counts. `out` may be `in`.
void rope_forward(execution::Queue& queue, const execution::View& in,
                  const execution::View& cu_seqlens, const execution::View& seq_idx,
                  const execution::View& out, std::int64_t heads, std::int64_t kv_heads,
                  std::int64_t head_dim, const RopeFrequencies& frequencies,
                  std::int64_t first_token = 0);

/// Gradient of the above: `in` is the gradient of its output, rotated back into `out`.
void rope_backward(execution::Queue& queue, const execution::View& in,
                   const execution::View& cu_seqlens, const execution::View& seq_idx,
                   const execution::View& out, std::int64_t heads, std::int64_t kv_heads,
                   std::int64_t head_dim, const RopeFrequencies& frequencies,
                   std::int64_t first_token = 0);

/// Of either direction.
execution::Cost rope_cost(std::int64_t tokens, std::int64_t heads, std::int64_t kv_heads,
                          std::int64_t head_dim, execution::Dtype storage);

/// Host references; in and out are dense, tokens are the length of seq_idx.
template <class S>
void rope_forward_ref(const S* in, const std::int32_t* cu_seqlens, const std::int32_t* seq_idx,
                      S* out, std::int64_t tokens, std::int64_t heads, std::int64_t kv_heads,
                      std::int64_t head_dim, const RopeFrequencies& frequencies,
                      std::int64_t first_token = 0);
template <class S>
void rope_backward_ref(const S* in, const std::int32_t* cu_seqlens, const std::int32_t* seq_idx,
                       S* out, std::int64_t tokens, std::int64_t heads, std::int64_t kv_heads,
                       std::int64_t head_dim, const RopeFrequencies& frequencies,
                       std::int64_t first_token = 0);

}  // namespace stowage::kernels
