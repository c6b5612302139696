#pragma once

namespace stowage::execution {

/// (query, key) pairs of causal attention, key <= query, in `tokens` tokens of documents of
/// `length` tokens each; causal_pairs(n, n) is that of one document of n tokens.
template <class Count>
constexpr Count causal_pairs(Count tokens, Count length) {
  return tokens * (length + 1) / 2;
}

}  // namespace stowage::execution
