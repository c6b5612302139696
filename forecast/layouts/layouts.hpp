#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "inputs/deck/deck.hpp"

namespace stowage::forecast {

/// What a search of layouts is asked.
struct LayoutQuestion {
  std::optional<std::int64_t> ranks;  ///< none: the fewest on which a layout fits
  std::int64_t most = 5;              ///< layouts that are shown
  bool quick = false;                 ///< an answer in seconds, by few and small plans
  double tokens = 0;                  ///< of the whole training; 0: its time is not asked
};

/// For people, and as a line of JSON.
struct LayoutAnswer {
  std::string text, json;
};

/// Finds the quickest ways to share the step of a deck among ranks under the memory of the machine,
/// and says why the others lose: all grids that the deck's sizes allow are estimated, the best are
/// planned in full, with everything computed again where what the deck says does not fit. Ends with
/// the keys that make each layout.
/// @throws Error (exit 2) if no layout is possible, or none fits, and by how much
LayoutAnswer find_layouts(const inputs::Deck& deck, const LayoutQuestion& question);

}  // namespace stowage::forecast
