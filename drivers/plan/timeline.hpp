#pragma once

#include <string>

#include "inputs/deck/deck.hpp"

namespace stowage::drivers {

/// The schedule of all stages of a deck's pipeline as a picture of text: time to the right, for
/// each stage what it computes and of which microbatch, and how long it waits.
/// @throws Error (exit 2) if the deck has no pipeline
std::string timeline_text(const inputs::Deck& deck, int columns);

}  // namespace stowage::drivers
