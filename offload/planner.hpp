#pragma once

#include <cstddef>

#include "execution/persistent.hpp"
#include "execution/plan.hpp"

namespace stowage::offload {

struct PlannerOptions {
  /// Multiple of execution::kAlignment; audit mode asks for whole pages.
  std::size_t alignment = execution::kAlignment;
};

/// Plans a program that keeps every saved tensor on the device: places, queues and edges.
/// The plan is not verified here; execution::require_proven does that before it runs.
execution::Plan plan_keep(const execution::Program& program,
                          const execution::PersistentLayout& layout,
                          const PlannerOptions& options = {});

}  // namespace stowage::offload
