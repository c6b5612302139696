#include "offload/hidden.hpp"

#include <algorithm>

namespace stowage::offload {

using execution::Decision;
using execution::Tensor;

namespace {

/// Takes from `wanted` what comes back in time and was away for a while. @return what stays
std::vector<Tensor> find_unhidden(const std::vector<Voyage>& wanted, const Itinerary& itinerary,
                                  const Rates& rates) {
  std::vector<Voyage> taken;
  std::vector<Tensor> stay;
  for (std::size_t first = 0; first < wanted.size();) {
    // The buffers of one tensor go or stay together.
    std::size_t last = first;
    while (last < wanted.size() && wanted[last].tensor == wanted[first].tensor) ++last;
    const auto at = [&](std::size_t i) { return wanted.begin() + static_cast<std::ptrdiff_t>(i); };
    std::vector<Voyage> tried = taken;
    tried.insert(tried.end(), at(first), at(last));
    const bool in_time = schedule(tried, itinerary, rates) <= 0;
    const bool away = std::all_of(tried.begin(), tried.end(),
                                  [](const Voyage& v) { return v.released < v.back; });
    if (in_time && away)
      taken = std::move(tried);
    else
      stay.push_back(wanted[first].tensor);
    first = last;
  }
  return stay;
}

}  // namespace

void keep_unhidden(const Drafts& drafts, Choice& choice) {
  const Draft draft = drafts.make(choice.decisions);
  for (const Leg& leg : draft.legs)
    for (const Tensor tensor : find_unhidden(leg.voyages, leg.itinerary, drafts.rates())) {
      choice.decisions[static_cast<std::size_t>(tensor.id)] = Decision::keep;
      choice.reasons[static_cast<std::size_t>(tensor.id)] = Reason::unhidden;
    }
}

}  // namespace stowage::offload
