#pragma once

#include <cstdint>

#include "execution/op.hpp"
#include "kernels/matrix.hpp"

namespace stowage::kernels {

/// When a gradient's norm is a spike: above `factor` times the running norm of the steps before.
struct SpikeRule {
  double factor = 0;               ///< 0: no norm is one
  std::int64_t window = 100;       ///< steps of the running norm
  std::int64_t most_in_a_row = 3;  ///< spikes skipped one behind the other; the next one is taken
};

/// What the host says of an attempt at a step, int64 each.
struct Attempt {
  /// Good steps that it believes to be done; -1: it does not care.
  std::int64_t good_steps = -1;
  /// 0: a spike will be attempted again, and counts then.
  std::int64_t last = 1;
};
inline constexpr std::int64_t kAttemptWords = sizeof(Attempt) / sizeof(std::int64_t);

/// Clears step_ok of a step that must not change anything although its gradient may be finite:
///
///   attempt.good_steps is not good_steps: a step before this one failed and the host did not know;
///   norm > factor * running[0], fewer than most_in_a_row such steps came before: a spike.
///
/// A spike of the last attempt is counted in running[1]. A good step sets running[1] to 0 and
///
///   running[0] += (norm - running[0]) max(1 / (good_steps + 1), 1 / window),
///
/// the mean of all steps until the window is full; the first norm, and one that is taken since too
/// many spikes came before it, become running[0] themselves.
///
/// attempt (2) int64, norm (1) fp32 or fp64, good_steps (1) int64: good steps so far; step_ok (1)
/// int32: 0 stays 0, and running stays as it is. running (2) fp64, absent without a rule.
void guard_step(execution::Queue& queue, const execution::View& attempt,
                const execution::View& norm, const execution::View& good_steps,
                const execution::View& running, const execution::View& step_ok,
                const SpikeRule& rule);

}  // namespace stowage::kernels
