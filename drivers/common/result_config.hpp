#pragma once

#include <string>

#include "inputs/deck/deck.hpp"
#include "results/value.hpp"

namespace stowage::drivers {

/// Every key of a deck with its value, as a result set stores them.
results::Fields config_fields(const inputs::Deck& deck);

/// The process grid of so many ranks, as a result set stores it.
results::Fields grid_fields(const inputs::Deck& deck, int ranks);

/// The same for people: "data 2, optimizer states sharded (ZeRO-1)".
std::string grid_text(const inputs::Deck& deck, int ranks);

}  // namespace stowage::drivers
