#pragma once

#include <vector>

#include "execution/persistent.hpp"
#include "execution/plan.hpp"
#include "offload/berths.hpp"
#include "offload/voyages.hpp"

namespace stowage::offload {

/// One section to be turned into steps.
struct Leg {
  Itinerary itinerary;
  std::vector<Voyage> voyages;
  std::vector<int> steps;  ///< set by assemble(): the step of each run
};

/// Makes steps and places, without offsets (but berths') and without edges (but the caps').
///
/// A copy to the host follows the run that writes the bytes; a copy back comes just before the run
/// that Voyage::back names; a mark keeps the first stay's bytes until the copy is predicted to be
/// done, so that nobody who takes them has to wait.
execution::Plan assemble(const execution::Program& program,
                         const execution::PersistentLayout& layout, const Berths& berths,
                         const std::vector<execution::Decision>& decisions,
                         const execution::CopyCaps& caps, std::vector<Leg>& legs);

}  // namespace stowage::offload
