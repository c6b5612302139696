#pragma once

#include <cstdint>

#include "execution/op.hpp"

namespace stowage::kernels {

/// The document of each token: seq_idx[t] = number of documents that end at or before t.
///
/// cu_seqlens (C + 1) int32: document starts, cu_seqlens[0] = 0, non-decreasing, padded to the
/// capacity C by repeating the last value. seq_idx (n) int32, non-decreasing; tokens at or beyond
/// cu_seqlens[C] are the tail and get C. Empty documents hold no token.
void document_index(execution::Queue& queue, const execution::View& cu_seqlens,
                    const execution::View& seq_idx);

execution::Cost document_index_cost(std::int64_t tokens, std::int64_t capacity);

}  // namespace stowage::kernels
