#pragma once

#include <string>
#include <vector>

#include "inputs/data/loader.hpp"
#include "inputs/deck/deck.hpp"

namespace stowage::drivers {

/// Predicted time of the steps that a capacity holds, and of those above it; 0: none was sampled.
struct StepTimes {
  double held_s = 0, above_s = 0;
};

/// By the planner's model and the deck's [machine], for steps evenly spaced over a pass, each kind
/// at the mean of its (query, key) pairs within documents. Launches by the host are not in the
/// model. The loader must be where a pass begins, and is moved.
/// @param refused why the deck has no plan; there is then no time
std::vector<StepTimes> step_times(const inputs::Deck& deck, inputs::Loader& loader,
                                  const std::vector<std::int64_t>& capacities,
                                  std::string& refused);

}  // namespace stowage::drivers
