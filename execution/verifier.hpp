#pragma once

#include <span>
#include <string>
#include <vector>

#include "execution/plan.hpp"

namespace stowage::execution {

/// A program with the plan that was made for it.
struct PlannedProgram {
  const Program* program = nullptr;
  const Plan* plan = nullptr;
};

/// Proves that the programs of a run, which share their memory, can be executed as planned.
///
/// Issues each program twice in a row, then the first one again, and follows what every byte holds
/// and which steps happen before which. Checked: each op runs once, on a queue of its lane, with
/// operands of its tensors; places are aligned and inside their region; each read comes after its
/// write in happens-before order and finds its own tensor; bytes are not overwritten while a step
/// may still use them; nothing that updates in place is rerun; ops of compute run one by one,
/// whatever queues launch them; all queues are joined at the end.
///
/// @return what is wrong, by name of step and tensor; empty: proven. At most 32 lines.
/// Cost: about a microsecond for each issue of a step: programs of 4 000 ops, 100 000 in all, which
/// become 450 000 steps with their copies, marks and graphs, take about a second
/// (ctest/offload/verifier_cost_test.cpp).
std::vector<std::string> verify(std::span<const PlannedProgram> programs);

/// Like verify; throws an Error with all lines if anything is wrong.
void require_proven(std::span<const PlannedProgram> programs);

}  // namespace stowage::execution
