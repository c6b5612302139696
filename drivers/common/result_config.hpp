#pragma once

#include "inputs/deck/deck.hpp"
#include "results/value.hpp"

namespace stowage::drivers {

/// Every key of a deck with its value, as a result set stores them.
results::Fields config_fields(const inputs::Deck& deck);

}  // namespace stowage::drivers
