#include "offload/planner.hpp"

#include <algorithm>
#include <vector>

#include "execution/error.hpp"
#include "offload/assembly.hpp"
#include "offload/edges.hpp"
#include "offload/hidden.hpp"
#include "offload/lifetimes.hpp"
#include "offload/manual.hpp"
#include "offload/packing.hpp"
#include "offload/prediction.hpp"

namespace stowage::offload {
namespace {

using execution::align_up;
using execution::Place;
using execution::Plan;
using execution::Program;
using execution::Region;

std::vector<Leg> make_legs(const Program& program, const std::vector<Cargo>& cargo,
                           const Reruns& reruns, const Choice& choice,
                           const PlannerOptions& options) {
  std::vector<Leg> legs(program.sections().size());
  for (std::size_t s = 0; s < legs.size(); ++s) {
    const int section = static_cast<int>(s);
    legs[s].itinerary = make_itinerary(program, reruns, section, choice.decisions, options.rates);
    legs[s].voyages = find_voyages(program, cargo, choice.decisions,
                                   options.policy.min_tensor_bytes, section, legs[s].itinerary);
    schedule(legs[s].voyages, legs[s].itinerary, options.rates);
  }
  return legs;
}

/// Lets copies back start earlier, as far as the fullest moment of the plan does not grow.
void hoist_all(const Plan& plan, std::vector<Leg>& legs, std::size_t alignment) {
  const std::vector<std::size_t> live =
      live_bytes_by_step(plan, live_ranges(plan), Region::transient, alignment);
  const std::size_t fullest = live.empty() ? 0 : *std::max_element(live.begin(), live.end());
  for (Leg& leg : legs) {
    std::vector<std::size_t> at_run;
    for (const int step : leg.steps) at_run.push_back(live[static_cast<std::size_t>(step)]);
    hoist(leg.voyages, leg.itinerary, at_run, fullest, alignment);
  }
}

/// Gives all places of a region their offsets.
void place(Plan& plan, Region region, std::size_t alignment) {
  std::vector<LiveRange> ranges = live_ranges(plan);
  const auto place_of = [&](const LiveRange& range) -> Place& {
    return plan.places[static_cast<std::size_t>(range.place)];
  };
  std::erase_if(ranges, [&](const LiveRange& range) { return place_of(range).region != region; });
  std::vector<Block> blocks;
  for (const LiveRange& range : ranges)
    blocks.push_back({range.begin, range.end, align_up(place_of(range).bytes, alignment)});
  const Packing packing = pack(blocks);
  for (std::size_t i = 0; i < ranges.size(); ++i) place_of(ranges[i]).offset = packing.offsets[i];
  plan.bytes[static_cast<int>(region)] = packing.bytes;
  if (region == Region::transient) plan.live_bytes = packing.bound;
}

void require_host_budget(const Plan& plan, const Policy& policy) {
  const std::size_t bytes = plan.bytes[static_cast<int>(Region::host)];
  const std::int64_t budget = policy.host_budget_bytes;
  if (budget >= 0 && bytes > static_cast<std::size_t>(budget))
    execution::throw_usage(
        "offload.host_budget_bytes = {}: what is offloaded needs {} bytes of pinned memory, {} "
        "more",
        budget, bytes, bytes - static_cast<std::size_t>(budget));
}

}  // namespace

Plan make_plan(const Program& program, const execution::PersistentLayout& layout,
               const PlannerOptions& options, Choice* choice) {
  const Policy& policy = options.policy;
  const std::vector<Cargo> cargo = find_cargo(program);
  const Reruns reruns(program);
  Choice made = choose_manual(program, cargo, reruns, policy);
  if (policy.keep_unhidden) keep_unhidden(program, cargo, reruns, policy, options.rates, made);
  std::vector<Leg> legs = make_legs(program, cargo, reruns, made, options);
  Plan plan = assemble(program, layout, made.decisions, policy.caps, legs);
  if (std::any_of(legs.begin(), legs.end(), [](const Leg& leg) { return !leg.voyages.empty(); })) {
    hoist_all(plan, legs, options.alignment);
    plan = assemble(program, layout, made.decisions, policy.caps, legs);
  }
  choose_segments(program, plan, options.graphs);
  place(plan, Region::transient, options.alignment);
  place(plan, Region::host, options.alignment);
  require_host_budget(plan, policy);
  add_edges(program, plan);
  const Prediction prediction = predict(program, plan, options.rates);
  plan.time_s = prediction.time_s;
  plan.exposed_s = prediction.exposed_s;
  if (choice != nullptr) *choice = std::move(made);
  return plan;
}

}  // namespace stowage::offload
