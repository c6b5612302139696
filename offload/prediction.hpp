#pragma once

#include <vector>

#include "execution/plan.hpp"
#include "offload/rates.hpp"

namespace stowage::offload {

struct TimeSpan {
  double begin_s, end_s;
};
/// The same points in time in order: those that overlap or touch are one.
std::vector<TimeSpan> merged(std::vector<TimeSpan> spans);

/// What a plan is expected to do in time.
struct Prediction {
  double time_s = 0;     ///< of one step of the program
  double exposed_s = 0;  ///< of it: compute waits for copies, directly or through other queues
  /// Of each plan step, at its first execution; of carried copies, in the next step.
  std::vector<double> begin_s, end_s;
  /// Of a measured step: what copies of counted rows moved, by plan step; empty: as expected.
  std::vector<std::size_t> counted_bytes = {};
};

/// Bytes that a copy of what lies at a place is expected to move.
std::size_t moved_bytes(const execution::Program& program, const execution::Place& place);

/// Follows a plan, with its events, on the queues of a machine: a step starts when its queue is
/// free and what it waits for is done. Compute beside copies is slower by what
/// Rates::with_copies says for each direction, a copy beside the other direction by
/// Rates::duplex_slowdown.
Prediction predict(const execution::Program& program, const execution::Plan& plan,
                   const Rates& rates);

}  // namespace stowage::offload
