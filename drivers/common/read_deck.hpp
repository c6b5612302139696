#pragma once

#include "inputs/deck/command_line.hpp"
#include "inputs/deck/deck.hpp"

namespace stowage::drivers {

/// The deck that a command line asks for: a file, or with `--from` that of an earlier result set.
/// @throws Error (exit 2) if there is none, or something in it is wrong
inputs::Deck read_deck(const inputs::CommandLine& command);

}  // namespace stowage::drivers
