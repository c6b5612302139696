#include "forecast/plan/delayed_text.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "results/format.hpp"

namespace stowage::forecast {
namespace {

std::string bytes_text(double held_bytes, const DelayedWeights& delayed) {
  const bool fits = held_bytes <= delayed.bound_bytes;
  return fmt::format("about {} held between passes, {} {}, {}", results::quantity(held_bytes, "B"),
                     fits ? "within" : "as in 1f1b, which is above",
                     results::quantity(delayed.bound_bytes, "B"),
                     delayed.as_1f1b ? "the most that a rank holds in 1f1b"
                                     : "that is parallel.zero_bubble_bytes");
}

}  // namespace

std::string delayed_text(const DelayedWeights& delayed) {
  return fmt::format("gradients of weights of up to {} microbatches wait on ranks 0 to {}; {}",
                     fmt::join(delayed.microbatches, ", "), delayed.microbatches.size() - 1,
                     bytes_text(*std::ranges::max_element(delayed.held_bytes), delayed));
}

std::string delayed_text(const DelayedWeights& delayed, int rank) {
  return fmt::format("gradients of weights of up to {} microbatches wait; {}",
                     delayed.microbatches[rank], bytes_text(delayed.held_bytes[rank], delayed));
}

}  // namespace stowage::forecast
