#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "inputs/deck/deck.hpp"

/// What a deck says of the machine that a plan is for.
namespace stowage::forecast {

/// True if [machine] has the rates that times are predicted from: of products and device memory.
/// Without them plans are made by the rates of one H200, and their times are nobody's.
bool knows_rates(const inputs::Deck& deck);

/// @throws Error (exit 2) that names `option` and the missing key unless knows_rates
void require_rates(const inputs::Deck& deck, std::string_view option);

/// A number of milliseconds, or "-" if the machine's rates are not known.
std::string milliseconds(bool known, double time_s);

/// Whether a rank's plan fits into a device of the machine.
struct MemoryFit {
  bool fits = true;  ///< also if the machine's memory is not known
  std::string text;  ///< a line that says so
};

/// @param device_bytes of the plan
MemoryFit memory_fit(const inputs::Deck& deck, std::size_t device_bytes);

}  // namespace stowage::forecast
