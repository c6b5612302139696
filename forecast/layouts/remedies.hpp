#pragma once

#include <string>

#include "forecast/plan/planned_rank.hpp"

namespace stowage::forecast {

/// Lines of what would help a plan that does not fit into the machine's memory: keys, each planned,
/// with pinned memory and predicted time of a step. Keys with which it does not fit either are left
/// out.
/// @param stage of the pipeline
std::string remedies_text(const inputs::Deck& deck, const PlannedData& data, int stage);

}  // namespace stowage::forecast
