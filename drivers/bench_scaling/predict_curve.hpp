#pragma once

#include <string>

#include "inputs/deck/deck.hpp"

namespace stowage::drivers {

/// Predicts the points of a curve anew, for the machine that a deck describes, beside what the set
/// holds: a line each with the measured time, the prediction that was made then, and this one.
/// Measures nothing, and needs neither the ranks nor a device.
/// @param path a result set of this driver  @param deck its own, but for what is said of [machine]
/// @return the table; its last line has the largest relative error
/// @throws Error (exit 2) for a file that is no curve
std::string predict_curve(const std::string& path, const inputs::Deck& deck);

}  // namespace stowage::drivers
