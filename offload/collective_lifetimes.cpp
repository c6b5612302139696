#include "offload/collective_lifetimes.hpp"

#include <algorithm>

#include "offload/conflicts.hpp"

namespace stowage::offload {
namespace {

using execution::Lane;
using execution::Plan;
using execution::StepRange;

Lane lane_of(const Plan& plan, int step) { return plan.queues[plan.steps[step].queue].lane; }

/// The first compute behind a step in its section that must follow it; -1: none.
int first_compute_after(const Plan& plan, const Conflicts& conflicts, const StepRange& section,
                        int step) {
  int first = section.end;
  conflicts.for_each_after(step, [&](int other) {
    if (other < first && lane_of(plan, other) == Lane::compute) first = other;
  });
  return first == section.end ? -1 : first;
}

}  // namespace

std::vector<LiveRange> collective_lifetimes(const execution::Program& program, const Plan& plan,
                                            std::vector<LiveRange> ranges, execution::Region region,
                                            std::size_t alignment, std::size_t most) {
  const Conflicts conflicts(program, plan);
  std::vector<std::size_t> live = live_bytes_by_step(plan, ranges, region, alignment);
  std::vector<LiveRange*> by_place(plan.places.size());
  for (LiveRange& range : ranges) by_place[range.place] = &range;
  const auto prolong = [&](int place, int end) {
    LiveRange* range = by_place[place];
    if (range == nullptr || plan.places[place].region != region || range->wraps() ||
        range->end >= end)
      return;
    const std::size_t bytes = execution::align_up(plan.places[place].bytes, alignment);
    const auto begin = live.begin() + range->end + 1, stop = live.begin() + end + 1;
    if (*std::max_element(begin, stop) + bytes > most) return;
    std::for_each(begin, stop, [bytes](std::size_t& sum) { sum += bytes; });
    range->end = end;
  };
  for (const StepRange& section : plan.sections)
    for (int i = section.begin; i < section.end; ++i) {
      if (lane_of(plan, i) != Lane::comm) continue;
      const int needed = first_compute_after(plan, conflicts, section, i);
      for (const int place : plan.steps[i].places) prolong(place, needed - 1);
    }
  return ranges;
}

}  // namespace stowage::offload
