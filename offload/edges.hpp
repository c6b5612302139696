#pragma once

#include "execution/plan.hpp"
#include "offload/planner.hpp"

namespace stowage::offload {

/// Adds to a plan, whose steps, places and queues are decided, the events that make it safe: the
/// fork of every queue from queue 0 at the start, an edge wherever two queues touch the same bytes
/// and one of them writes, and the join of every queue at the end. Edges that follow from others
/// are left out.
void add_edges(const execution::Program& program, execution::Plan& plan, const Chains& chains);

}  // namespace stowage::offload
