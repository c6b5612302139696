#include "offload/draft.hpp"

#include <algorithm>

#include "offload/lifetimes.hpp"

namespace stowage::offload {

using execution::Decision;

namespace {

/// Predicted time that a section waits for bytes whose copies to the host are not done.
double forced_wait_s(const Leg& leg) {
  double wait_s = 0;
  for (const Voyage& v : leg.voyages)
    wait_s =
        std::max(wait_s, v.out_end_s - leg.itinerary.start_s[static_cast<std::size_t>(v.released)]);
  return wait_s;
}

/// What the copies to the host cost the compute beside them.
double slowdown_s(const Leg& leg, const Rates& rates) {
  double copying_s = 0;
  for (const Voyage& v : leg.voyages) copying_s += rates.d2h_s(v.bytes);
  return copying_s * (rates.copy_slowdown - 1);
}

}  // namespace

Drafts::Drafts(const execution::Program& program, const execution::PersistentLayout& layout,
               const Policy& policy, const Rates& rates, std::size_t alignment)
    : program_(program),
      layout_(layout),
      policy_(policy),
      rates_(rates),
      alignment_(alignment),
      cargo_(find_cargo(program)),
      reruns_(program) {}

void Drafts::assemble(Draft& draft, const std::vector<Decision>& decisions) const {
  draft.plan = offload::assemble(program_, layout_, decisions, policy_.caps, draft.legs);
  draft.live = live_bytes_by_step(draft.plan, live_ranges(draft.plan), execution::Region::transient,
                                  alignment_);
  draft.peak = draft.live.empty() ? 0 : *std::max_element(draft.live.begin(), draft.live.end());
}

Draft Drafts::make(const std::vector<Decision>& decisions) const {
  Draft draft;
  for (std::size_t s = 0; s < program_.sections().size(); ++s) {
    const int section = static_cast<int>(s);
    Leg leg;
    leg.itinerary = make_itinerary(program_, reruns_, section, decisions, rates_);
    leg.voyages =
        find_voyages(program_, cargo_, decisions, policy_.min_tensor_bytes, section, leg.itinerary);
    const double wait_s = schedule(leg.voyages, leg.itinerary, rates_);
    draft.time_s += program_.sections()[s].repeat *
                    (leg.itinerary.start_s.back() + wait_s + slowdown_s(leg, rates_));
    draft.legs.push_back(std::move(leg));
  }
  assemble(draft, decisions);
  return draft;
}

Draft Drafts::make_within(const std::vector<Decision>& decisions, std::size_t limit) const {
  Draft draft = make(decisions);
  const double unforced_s = draft.time_s;
  for (std::size_t last = draft.peak + 1; draft.peak > limit && draft.peak < last;) {
    last = draft.peak;
    for (Leg& leg : draft.legs) {
      if (leg.steps.empty()) continue;
      const auto live_at = [&](int step) { return draft.live[static_cast<std::size_t>(step)]; };
      const auto fullest = std::max_element(leg.steps.begin(), leg.steps.end(),
                                            [&](int a, int b) { return live_at(a) < live_at(b); });
      if (live_at(*fullest) <= limit) continue;
      const int run = static_cast<int>(fullest - leg.steps.begin());
      for (Voyage& v : leg.voyages)
        if (run > std::max(v.written, v.last_forward) && run < v.released) v.released = run;
    }
    assemble(draft, decisions);
  }
  draft.time_s = unforced_s;
  for (std::size_t s = 0; s < draft.legs.size(); ++s)
    draft.time_s += program_.sections()[s].repeat * forced_wait_s(draft.legs[s]);
  return draft;
}

void Drafts::hoist(Draft& draft, std::size_t limit) const {
  for (Leg& leg : draft.legs) {
    std::vector<std::size_t> at_run;
    for (const int step : leg.steps) at_run.push_back(draft.live[static_cast<std::size_t>(step)]);
    offload::hoist(leg.voyages, leg.itinerary, at_run, limit, alignment_);
  }
  const std::vector<Decision> decisions = draft.plan.decisions;
  assemble(draft, decisions);
}

}  // namespace stowage::offload
