#pragma once

#include <functional>
#include <optional>

#include "drivers/bench_scaling/point.hpp"
#include "parallel/job/mpi.hpp"
#include "results/result_set.hpp"
#include "run/machine/machine.hpp"

namespace stowage::drivers {

/// What came of a point: one of the three.
struct ScalingOutcome {
  /// Its step times, (steps, ranks), as scaling/<point>, with what else is known of it as
  /// attributes; on rank 0, empty elsewhere.
  std::optional<results::Samples> samples;
  std::string refused;   ///< why it cannot run: too little memory
  bool stopped = false;  ///< a rank was asked to stop before it was done: nothing is kept of it
};

/// Collective. Trains a point from the start on the ranks of `ranks`, which are those of its
/// layout: steps that warm up, the digest of the state after them, steps timed op by op, and steps
/// timed whole, issued one ahead as in training.
/// @param stop asked before each step; all ranks act on it after the same one
ScalingOutcome measure(const ScalingPoint& point, const ScalingOptions& options,
                       const parallel::Communicator& ranks, run::Machine& machine,
                       const std::function<bool()>& stop);

}  // namespace stowage::drivers
