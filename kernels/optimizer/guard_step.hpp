#pragma once

#include <cstdint>

#include "execution/parallel_for.hpp"

namespace stowage::kernels::detail {

/// guard_step on one element, written once for both backends. T is the type of the norm.
template <class T>
struct GuardStep {
  const std::int64_t* attempt;
  const T* norm;
  const std::int64_t* good_steps;
  double* running;  ///< null: no spikes
  std::int32_t* step_ok;
  double factor;
  std::int64_t window, most_in_a_row;

  STOWAGE_PORTABLE void operator()(std::int64_t) const {
    const std::int64_t expected = attempt[0], good = *good_steps;
    if (expected >= 0 && expected != good) *step_ok = 0;
    if (*step_ok == 0 || running == nullptr) return;
    const auto now = static_cast<double>(*norm);
    const bool large = running[0] > 0 && now > factor * running[0];
    const bool taken = running[1] >= static_cast<double>(most_in_a_row);
    if (large && !taken) {
      *step_ok = 0;
      if (attempt[1] != 0) running[1] += 1;
      return;
    }
    const std::int64_t steps = good + 1 < window ? good + 1 : window;
    const bool from_here = large || !(running[0] > 0);
    running[0] = from_here ? now : running[0] + (now - running[0]) / static_cast<double>(steps);
    running[1] = 0;
  }
};

}  // namespace stowage::kernels::detail
