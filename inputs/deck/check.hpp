#pragma once

#include <cstdint>

#include "inputs/deck/deck.hpp"

namespace stowage::inputs {

/// Checks what a single key cannot show: the pattern's letters, heads against groups, experts
/// against top-k, batch sizes, schedules, and names in two lists. Deck::load has called it.
/// Throws a usage error that cites every key involved.
void check(const Deck& deck);

/// Checks the deck against the number of ranks: [parallel] sizes, and a global batch that divides
/// into ranks * micro_batch_size. Returns the microbatches per rank and step.
std::int64_t check_ranks(const Deck& deck, std::int64_t ranks);

}  // namespace stowage::inputs
