#pragma once

#include <cstdint>
#include <string>

#include "inputs/deck/deck.hpp"

namespace stowage::forecast {

/// Finds the quickest ways to share the step of a deck among `ranks` ranks under the memory of the
/// machine, and says why the others lose: all grids that the deck's sizes allow are estimated, the
/// best are planned in full, with everything computed again where what the deck says does not fit.
/// @param most layouts that are shown
/// @return a table for people
/// @throws Error (exit 2) if no layout is possible, or none fits, and by how much
std::string layouts_text(const inputs::Deck& deck, std::int64_t ranks, std::int64_t most);

}  // namespace stowage::forecast
