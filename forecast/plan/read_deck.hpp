#pragma once

#include "inputs/deck/command_line.hpp"
#include "inputs/deck/deck.hpp"

namespace stowage::forecast {

/// The deck that a command line asks for: a file, or with `--from` that of an earlier result set.
/// @throws Error (exit 2) if there is none, or something in it is wrong
/// @param speaks whether it says on stderr what it leaves out of an earlier deck
inputs::Deck read_deck(const inputs::CommandLine& command, bool speaks = true);

}  // namespace stowage::forecast
