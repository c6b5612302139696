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

/// Name of the deck's own policy in a sweep; others may be refused, this one was asked for.
inline constexpr const char* kDeckCase = "deck";

/// Device bytes that the sweep's budgets are made from.
struct SweepBytes {
  std::size_t persistent = 0;  ///< what outlives a step
  std::size_t kept = 0;        ///< transient bytes of the plan that keeps everything
  std::size_t recomputed = 0;  ///< and of the one that computes all again that it can
};

/// The sweep. First the plan that keeps everything, op by op; then in every mode: the same, what is
/// free, what is hidden, manual plans that move a fraction of everything, automatic plans within
/// parts of the transient bytes that the first one needs and within those of full recompute, full
/// recompute; last what the deck itself asks for, if it asks for anything.
///
/// @param base of the deck: rates, alignment, sizes
/// @param modes graph modes: "off", "scopes", "step"
/// @param program to be planned: its module names are what moves
std::vector<OffloadCase> offload_cases(const offload::PlannerOptions& base,
                                       const std::vector<std::string>& modes,
                                       const execution::Program& program, const SweepBytes& bytes);

}  // namespace stowage::drivers
