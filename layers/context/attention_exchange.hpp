#pragma once

#include <cstdint>

#include "kernels/attention/attention.hpp"
#include "layers/recording/config.hpp"

namespace stowage::layers {

/// True if so many ranks can exchange heads: the query heads divide among them, and so do the key
/// and value heads, or each of these goes to equally many ranks, with the queries that read it.
bool can_exchange_heads(const kernels::AttentionShape& shape, int ranks);

/// True if `ranks` that share sequences exchange heads, false if they gather keys and values.
/// @param shape with the heads that the ranks share
/// @throws Error (exit 2) if the deck asks for heads and they cannot be exchanged
bool exchanges_heads(const ModelConfig::Attention& attention, const kernels::AttentionShape& shape,
                     int ranks);

/// (query, key) pairs of a head that the busiest of `ranks` has, which gather keys: of its own
/// tokens or, with `zigzag`, of two chunks. All `tokens` are taken for equal causal sequences,
/// of `pairs` in all; of one token each if there are fewer pairs.
std::int64_t busiest_pairs(std::int64_t tokens, std::int64_t pairs, int ranks, bool zigzag);

}  // namespace stowage::layers
