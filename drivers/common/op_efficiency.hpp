#pragma once

#include <functional>
#include <map>
#include <string>

#include "inputs/deck/deck.hpp"

namespace stowage::drivers {

/// What machine.op_efficiency says, by kind of op (offload::Rates::efficiency).
/// @throws Error (exit 2) for a line that is no kind with a number above 0, or a kind given twice
std::map<std::string, double, std::less<>> op_efficiency(const inputs::Deck& deck);

}  // namespace stowage::drivers
