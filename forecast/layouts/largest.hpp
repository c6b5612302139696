#pragma once

#include <string>

#include "inputs/deck/deck.hpp"

/// The largest run of a deck's kind that fits into the machine's memory.
namespace stowage::forecast {

/// What grows; all else is the deck's.
enum class Growing {
  /// The sequence, of which a step has one, in steps of 1024 tokens of a rank. As many ranks share
  /// it as parallel.context says, and no others.
  length,
  /// The model's layers: those of its pattern over and over.
  depth,
  /// The model's hidden_size, in steps of 128. Heads, and the widths of MLPs and experts, grow by
  /// the same factor, rounded up to what their groups and 128 divide.
  width,
};

/// "depth" or "width". @throws Error (exit 2) for another word
Growing parse_growing(const std::string& word);

/// A table of the largest by what is kept (kWaysToKeep). Parameters, gradients, optimizer states
/// and 2 GiB for the driver and its libraries are counted.
/// @throws Error (exit 2) if the deck's [machine] does not say how much memory there is, or if more
/// ranks share the model than the table is of
std::string largest_text(const inputs::Deck& deck, Growing growing);

}  // namespace stowage::forecast
