#pragma once

#include <cstdint>

#include "execution/op.hpp"

namespace stowage::kernels {

/// The documents of tokens [first, first + tokens) of those that cu_seqlens counts, counted from
/// `first`: part[i] = cu_seqlens[i] - first, at least 0 and at most `tokens`. Both (C + 1) int32.
/// A document that begins before the part begins with it, one that does not reach it is empty, so
/// document_index gives a token the same number as among all tokens.
void segment_documents(execution::Queue& queue, const execution::View& cu_seqlens,
                       std::int64_t first, std::int64_t tokens, const execution::View& part);

execution::Cost segment_documents_cost(std::int64_t capacity);

}  // namespace stowage::kernels
