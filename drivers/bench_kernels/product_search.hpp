#pragma once

#include <functional>

#include "kernels/linear/product_plan.hpp"
#include "run/measure/timer.hpp"

namespace stowage::drivers::bench {

/// Runs one candidate of a plan.
using RunCandidate = std::function<void(execution::Queue&, int candidate)>;
/// Whether a candidate gives the right result, and the same bits every time.
using Accepted = std::function<bool(int candidate)>;

/// The candidate that a row of the table of algorithms names: the fastest of all, if it is accepted
/// and clearly faster than the heuristics' first choice, which is candidate 0; else that.
///
/// All candidates are timed in turn, then the best of them again, and the last few as often as a
/// published figure: a lucky sample of one in many would win otherwise. Clearly: by 1 % of the
/// median, with 95 % intervals of the medians apart.
int fastest_candidate(run::Timer& timer, int candidates, const RunCandidate& run,
                      const Accepted& accepted);

}  // namespace stowage::drivers::bench
