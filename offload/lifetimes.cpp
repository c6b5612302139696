#include "offload/lifetimes.hpp"

#include <algorithm>

#include "execution/plan_shape.hpp"

namespace stowage::offload {

using execution::align_up;
using execution::first_carried;
using execution::Plan;
using execution::Region;
using execution::StepRange;

namespace {

/// By place: whether a carried copy reads it.
std::vector<char> carried_places(const Plan& plan) {
  std::vector<char> carried(plan.places.size(), 0);
  for (auto i = static_cast<std::size_t>(first_carried(plan)); i < plan.steps.size(); ++i)
    carried[plan.steps[i].places.front()] = 1;
  return carried;
}

}  // namespace

std::vector<LiveRange> live_ranges(const Plan& plan) {
  std::vector<LiveRange> by_place(plan.places.size());
  const std::vector<char> carried = carried_places(plan);
  std::vector<int> released(plan.places.size(), -1);  // the mark of a carried place
  for (const StepRange& section : plan.sections)
    for (int i = section.begin; i < section.end; ++i)
      for (const int place : plan.steps[i].places) {
        LiveRange& range = by_place[place];
        if (carried[place] != 0 && plan.steps[i].what == execution::Step::What::mark) {
          released[place] = section.repeat > 1 ? section.end - 1 : i;
          continue;
        }
        if (range.place < 0) range = {place, i, i};
        const bool entered_before = section.repeat > 1 && range.begin < section.begin;
        range.end = std::max(range.end, entered_before ? section.end - 1 : i);
      }
  std::vector<LiveRange> ranges;
  for (LiveRange& range : by_place)
    if (range.place >= 0 && released[range.place] >= 0) range.end = released[range.place];
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
    if (range.wraps()) live.front() += bytes;
  }
  for (std::size_t i = 1; i < live.size(); ++i) live[i] += live[i - 1];
  live.pop_back();
  return live;
}

}  // namespace stowage::offload
