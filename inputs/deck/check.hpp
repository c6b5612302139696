#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "inputs/deck/deck.hpp"

namespace stowage::inputs {

/// Checks what a single key cannot show, struct by struct (section.hpp). Deck::load has called it.
/// Throws a usage error that cites every key involved.
void check(const Deck& deck);

/// Checks the deck against the number of ranks: [parallel] sizes, and a global batch that divides
/// into micro_batch_size * ranks with other sequences. Returns the microbatches per rank and step.
/// Defined beside the rows of [parallel].
std::int64_t check_ranks(const Deck& deck, std::int64_t ranks);

// What owners check of integer keys.

/// `small` divides `large`.
void check_divides(const Deck& deck, std::string_view small, std::string_view large);
/// `small` is at most `large`.
void check_at_most(const Deck& deck, std::string_view small, std::string_view large);
/// The elements of something are a product of sizes: refused where no machine has as much. The
/// product is made in double, which cannot overflow.
void check_product(const Deck& deck, std::string_view what,
                   std::initializer_list<std::string_view> keys, double most = 0x1p42);

}  // namespace stowage::inputs
