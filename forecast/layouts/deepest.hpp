#pragma once

#include <string>

#include "inputs/deck/deck.hpp"

namespace stowage::forecast {

/// A table of the deepest model, of layers of the deck's pattern over and over, that one device of
/// the machine trains: with all kept, with all that can be computed again, and with optimizer
/// states on the host besides. Width, batch and all else are the deck's.
/// @throws Error (exit 2) if the deck's [machine] does not say how much memory there is, or if
/// several ranks share the model
std::string deepest_text(const inputs::Deck& deck);

}  // namespace stowage::forecast
