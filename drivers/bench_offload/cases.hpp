#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "offload/planner.hpp"

namespace stowage::drivers {

/// One way to plan the step of a deck.
struct OffloadCase {
  std::string name;  ///< "auto_60/step": policy and graph mode
  offload::PlannerOptions options;
};

/// The sweep. First the plan that keeps everything; then manual plans that move all there is, or a
/// fraction of it, full recompute, what is free, and automatic plans within parts of the transient
/// bytes that the first one needs; last what the deck itself asks for, if it asks for anything.
///
/// @param base of the deck: rates, alignment, sizes
/// @param modes graph modes: "off", "scopes", "step"
/// @param program to be planned: its module names are what moves
/// @param persistent bytes that outlive a step  @param transient bytes that the first case needs
std::vector<OffloadCase> offload_cases(const offload::PlannerOptions& base,
                                       const std::vector<std::string>& modes,
                                       const execution::Program& program, std::size_t persistent,
                                       std::size_t transient);

}  // namespace stowage::drivers
