#pragma once

#include <string>

#include "inputs/deck/deck.hpp"

namespace stowage::forecast {

/// A table of the longest sequence, in steps of 1024 tokens of a rank, of which one fits into the
/// machine's memory, shared by as many ranks as parallel.context says and no others: with all kept,
/// with all that can be computed again, with all that can leave, and with what the automatic policy
/// makes of both. Parameters, optimizer states and 2 GiB for the driver and its libraries are
/// counted.
/// @throws Error (exit 2) if the deck's [machine] does not say how much memory there is
std::string longest_text(const inputs::Deck& deck);

}  // namespace stowage::forecast
