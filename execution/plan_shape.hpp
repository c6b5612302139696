#pragma once

#include <string>
#include <vector>

#include "execution/plan.hpp"

namespace stowage::execution {

/// Calls `visit(use, place index)` for each buffer of each use of an op, in order.
template <class Visit>
void for_each_operand(const Program& program, const Op& op, const Step& step, Visit&& visit) {
  std::size_t next = 0;
  for (const Use& use : op.uses)
    for (std::size_t b = 0; b < program.info(use.tensor).buffers.size(); ++b)
      visit(use, step.places[next++]);
}

/// True for the copy of an input or an output, whose pinned slot is another one in each step.
bool uses_ring(const Program& program, const Step& step);

/// Copies behind the join of a plan, the last step of queue 0, are carried into the next execution:
/// it waits for each where it uses the same bytes.
/// @return the first of them, or the number of steps
int first_carried(const Plan& plan);

/// Checks what can be seen without order: that a plan's steps are those of its program, with
/// operands, queues, events and places that exist and fit. Appends what is wrong to `faults`.
void check_shape(const Program& program, const Plan& plan, std::vector<std::string>& faults);

}  // namespace stowage::execution
