#include "offload/lifetimes.hpp"

#include <algorithm>

namespace stowage::offload {

using execution::align_up;
using execution::Plan;
using execution::Region;
using execution::StepRange;

std::vector<LiveRange> live_ranges(const Plan& plan) {
  std::vector<LiveRange> by_place(plan.places.size());
  for (const StepRange& section : plan.sections)
    for (int i = section.begin; i < section.end; ++i)
      for (const int place : plan.steps[i].places) {
        LiveRange& range = by_place[place];
        if (range.place < 0) range = {place, i, i};
        const bool entered_before = section.repeat > 1 && range.begin < section.begin;
        range.end = std::max(range.end, entered_before ? section.end - 1 : i);
      }
  std::vector<LiveRange> ranges;
  for (const LiveRange& range : by_place)
    if (range.place >= 0 && plan.places[range.place].region != Region::persistent)
      ranges.push_back(range);
  return ranges;
}

std::vector<std::size_t> live_bytes_by_step(const Plan& plan, const std::vector<LiveRange>& ranges,
                                            Region region, std::size_t alignment) {
  std::vector<std::size_t> live(plan.steps.size() + 1, 0);
  for (const LiveRange& range : ranges) {
    const execution::Place& place = plan.places[range.place];
    if (place.region != region) continue;
    const std::size_t bytes = align_up(place.bytes, alignment);
    live[range.begin] += bytes;
    live[static_cast<std::size_t>(range.end) + 1] -= bytes;
  }
  for (std::size_t i = 1; i < live.size(); ++i) live[i] += live[i - 1];
  live.pop_back();
  return live;
}

}  // namespace stowage::offload
