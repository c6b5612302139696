#include "offload/planner.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "execution/error.hpp"
#include "offload/automatic.hpp"
#include "offload/collective_lifetimes.hpp"
#include "offload/draft.hpp"
#include "offload/edges.hpp"
#include "offload/gradient_memory_reuse.hpp"
#include "offload/lifetimes.hpp"
#include "offload/manual.hpp"
#include "offload/overlap.hpp"
#include "offload/packing.hpp"
#include "offload/prediction.hpp"
#include "offload/state_windows.hpp"

namespace stowage::offload {
namespace {

using execution::align_up;
using execution::Place;
using execution::Plan;
using execution::Program;
using execution::Region;

/// How often a budget that was not met is tried again with less.
constexpr int kMostTries = 8;
/// How often a budget that was met after all is tried again with more.
constexpr int kMostRefinements = 4;
/// Part of a budget that is not worth another try.
constexpr std::size_t kCloseEnough = 64;
/// Parts of a draft's fullest moment up to which copies back are issued early, as far as addresses
/// are found for what then lives longer.
constexpr double kPrefetches[] = {1.0, 0.9, 0.8, 0.0};
/// Factor on time that counts as nothing.
constexpr double kFree = 1.002;

/// "65536 bytes (0.000 GiB)"
template <class Bytes>
std::string sized(Bytes bytes) {
  return fmt::format("{} bytes ({:.3f} GiB)", bytes, static_cast<double>(bytes) / (1 << 30));
}

/// Transient bytes that the automatic policy may use; 0: it takes only what is free.
std::size_t transient_budget(const Policy& policy, const execution::PersistentLayout& layout) {
  if (policy.kind != Policy::Kind::automatic || policy.device_budget_bytes == 0) return 0;
  const auto budget = static_cast<std::size_t>(policy.device_budget_bytes);
  const std::size_t outlives = layout.bytes() + policy.state_copy_bytes;
  if (budget <= outlives)
    execution::throw_usage(
        "offload.device_budget_bytes = {}: parameters, gradients and optimizer states alone need "
        "{}{}, and the step some more; offload.states can leave {} of them on the host",
        budget, sized(layout.bytes()), with_state_copy(policy),
        sized(layout.bytes(execution::Lifetime::optimizer_state)));
  return budget - outlives;
}

/// @throws Error (exit 2) if what has its home on the host is more than may lie there
void require_homes(const Policy& policy, const execution::PersistentLayout& layout) {
  const auto homes = static_cast<std::int64_t>(layout.host_bytes());
  if (policy.host_budget_bytes >= 0 && homes > policy.host_budget_bytes)
    execution::throw_usage(
        "offload.host_budget_bytes = {}: states on the host (offload.states) need {}, {} more",
        policy.host_budget_bytes, sized(homes), sized(homes - policy.host_budget_bytes));
}

Choice choose(const Drafts& drafts, const Choice* given, std::size_t budget) {
  if (given != nullptr) return *given;
  const Policy& policy = drafts.policy();
  if (policy.kind == Policy::Kind::automatic) return choose_automatic(drafts, budget);
  Choice choice = choose_manual(drafts.program(), drafts.saved_tensors(), drafts.reruns(), policy);
  if (policy.keep_exposed) keep_exposed(drafts, choice);
  return choice;
}

Packing pack(const Plan& plan, const std::vector<LiveRange>& ranges, std::size_t alignment,
             std::size_t enough) {
  std::vector<Block> blocks;
  for (const LiveRange& range : ranges)
    blocks.push_back({range.begin, range.end, align_up(plan.places[range.place].bytes, alignment)});
  return pack(blocks, enough);
}

/// Gives all places of a region their offsets, but those of homes, in `enough` bytes or as few as
/// are found. In no more than these, what exchanges use is left to them as long as compute beside
/// them lasts.
/// @param base where the first may begin
void place(const Program& program, Plan& plan, Region region, std::size_t alignment,
           std::size_t enough = 0, std::size_t base = 0) {
  std::vector<LiveRange> ranges = live_ranges(plan);
  std::erase_if(ranges, [&](const LiveRange& range) {
    const Place& place = plan.places[range.place];
    const bool home =
        place.region == Region::host && is_persistent(program.info(place.tensor).lifetime);
    return place.region != region || home;
  });
  Packing packing = pack(plan, ranges, alignment, enough);
  if (region == Region::transient) {
    plan.live_bytes = packing.bound;
    const auto longer =
        collective_lifetimes(program, plan, ranges, region, alignment, packing.bytes);
    if (longer != ranges)
      if (Packing other = pack(plan, longer, alignment, packing.bytes);
          other.bytes <= packing.bytes)
        packing = std::move(other);
  }
  for (std::size_t i = 0; i < ranges.size(); ++i)
    plan.places[ranges[i].place].offset = base + packing.offsets[i];
  plan.bytes[static_cast<int>(region)] = base + packing.bytes;
}

/// A plan that waits for copies anyway gives their bytes back as early as that costs nothing more.
Draft make_draft(const Drafts& drafts, const Choice& choice, std::size_t limit) {
  if (limit > 0) return drafts.make_within(choice.decisions, limit);
  Draft draft = drafts.make(choice.decisions);
  if (draft.wait_s <= 0) return draft;
  return drafts.make_smallest(choice.decisions, draft.time_s * kFree);
}

std::size_t needed(const Plan& plan) { return plan.bytes[static_cast<int>(Region::transient)]; }

/// Bytes that may be live when windows of states are loaded early: all of a budget; without one as
/// many as at the fullest moment anyway, or as copies in both directions at once take.
std::size_t window_bytes(const Draft& draft, const PlannerOptions& options, std::size_t budget) {
  return budget > 0 ? std::max(draft.peak, budget)
                    : std::max(draft.peak, least_window_bytes(draft.sections, options.alignment));
}

/// A plan with addresses on the device.
struct Attempt {
  Choice choice;
  Plan plan;
  double time_s = 0;
  std::size_t peak = 0;  ///< of the draft

  std::size_t needed() const { return offload::needed(plan); }
};

Attempt attempt(const Drafts& drafts, const PlannerOptions& options, std::size_t limit,
                std::size_t budget) {
  Attempt made;
  made.choice = choose(drafts, options.given, limit);
  const Draft draft = make_draft(drafts, made.choice, limit);
  made.time_s = draft.time_s;
  made.peak = draft.peak;
  for (const double part : kPrefetches) {
    Draft prefetched = draft;
    const auto part_of = [&](std::size_t bytes) {
      return static_cast<std::size_t>(part * static_cast<double>(bytes));
    };
    drafts.prefetch_early(prefetched, part_of(draft.peak),
                          part_of(window_bytes(draft, options, budget)));
    choose_segments(drafts.program(), prefetched.plan, options.graphs);
    place(drafts.program(), prefetched.plan, Region::transient, options.alignment,
          budget > 0 ? budget : options.enough_bytes);
    const std::size_t before = made.needed();
    if (before == 0 || needed(prefetched.plan) < before) made.plan = std::move(prefetched.plan);
    if (budget == 0 || made.needed() <= budget) break;
  }
  return made;
}

/// The same below what the budget leaves; nothing if no decisions get there.
std::optional<Attempt> attempt_below(const Drafts& drafts, const PlannerOptions& options,
                                     std::size_t limit, std::size_t budget) {
  try {
    return attempt(drafts, options, limit, budget);
  } catch (const execution::Error&) {
    return std::nullopt;
  }
}

/// A limit lower by a step, and below the draft that was too much: above it, the search as a rule
/// finds that draft again (not always, since a limit also decides what is evicted early).
std::size_t below(const Attempt& made, std::size_t limit, std::size_t step) {
  return std::max<std::size_t>(std::min(limit - std::min(limit, step), made.peak), 2) - 1;
}

/// A plan of decisions that leave few bytes, if it needs less than `best`, which does not fit:
/// tensors live longer in graphs than in the drafts that the policy weighs.
Attempt fit_least(const Drafts& drafts, const PlannerOptions& options, std::size_t budget,
                  Attempt best) {
  if (options.given != nullptr || options.policy.kind != Policy::Kind::automatic) return best;
  for (const Choice& least : least_choices(drafts)) {
    PlannerOptions given = options;
    given.given = &least;
    Attempt other = attempt(drafts, given, 1, budget);
    if (other.needed() < best.needed()) best = std::move(other);
    if (best.needed() <= budget) break;
  }
  return best;
}

/// The fastest plan found that fits: graphs and packing may need more than a draft says, so a draft
/// gets that much less, and then again some of it back. The last one tried if none fits.
Attempt fit(const Drafts& drafts, const PlannerOptions& options, std::size_t budget) {
  Attempt best = attempt(drafts, options, budget, budget);
  if (budget == 0 || best.needed() <= budget) return best;
  std::size_t high = budget;  // too much, as a limit for drafts
  std::size_t step = best.needed() - budget;
  std::size_t low = below(best, high, step);
  for (int tries = 1; tries < kMostTries; ++tries) {
    std::optional<Attempt> other = attempt_below(drafts, options, low, budget);
    if (!other) {
      low += (high - low) / 2;
      continue;
    }
    best = *std::move(other);
    if (best.needed() <= budget) break;
    high = low;
    step = std::max(2 * (best.needed() - budget), step + step / 2);
    low = below(best, low, step);
  }
  if (best.needed() > budget) return fit_least(drafts, options, budget, std::move(best));
  for (int i = 0; i < kMostRefinements && high - low > budget / kCloseEnough; ++i) {
    const std::size_t limit = low + (high - low) / 2;
    std::optional<Attempt> other = attempt_below(drafts, options, limit, budget);
    const bool fits = other && other->needed() <= budget;
    (fits ? low : high) = limit;
    if (fits && other->time_s < best.time_s) best = *std::move(other);
  }
  return best;
}

/// Bytes of pinned memory above the budget.
std::int64_t host_excess(const Plan& plan, const Policy& policy) {
  const auto bytes = static_cast<std::int64_t>(plan.bytes[static_cast<int>(Region::host)]);
  return policy.host_budget_bytes < 0 ? 0 : bytes - policy.host_budget_bytes;
}

void require_budgets(const Plan& plan, const Policy& policy, std::size_t transient) {
  if (transient > 0 && needed(plan) > transient)
    execution::throw_usage(
        "offload.device_budget_bytes = {}: the step needs {} beside what outlives it{}, {} more "
        "than are left",
        policy.device_budget_bytes, sized(needed(plan)), with_state_copy(policy),
        sized(needed(plan) - transient));
  if (host_excess(plan, policy) > 0)
    execution::throw_usage(
        "offload.host_budget_bytes = {}: what is offloaded needs {} of pinned memory{}, {} more",
        policy.host_budget_bytes, sized(plan.bytes[static_cast<int>(Region::host)]),
        policy.home_bytes > 0 ? " with states" : "", sized(host_excess(plan, policy)));
}

/// A plan with all its addresses, within the budgets. Those on the host may need more than what is
/// there at once, so the automatic policy then tries with that much less.
Attempt meet(const Drafts& drafts, const PlannerOptions& options, std::size_t budget) {
  const auto place_on_host = [&](Attempt& made) {
    place(drafts.program(), made.plan, Region::host, options.alignment, 0,
          align_up(drafts.layout().host_bytes(), options.alignment));
  };
  Attempt made = fit(drafts, options, budget);
  place_on_host(made);
  PlannerOptions less = options;
  std::int64_t& room = less.policy.host_budget_bytes;
  for (int tries = 1; tries < kMostTries && host_excess(made.plan, options.policy) > 0; ++tries) {
    room -= host_excess(made.plan, options.policy);
    if (options.policy.kind != Policy::Kind::automatic ||
        room < static_cast<std::int64_t>(drafts.layout().host_bytes()))
      break;
    const Drafts smaller(drafts.program(), drafts.layout(), less.policy, options.rates,
                         options.alignment);
    made = fit(smaller, less, budget);
    place_on_host(made);
  }
  require_budgets(made.plan, options.policy, budget);
  return made;
}

/// Tensors in gradient memory do not move; one that a rerun reads too late falls back to transient
/// memory. So a budget that is not met with them is tried once without.
Attempt meet_somehow(const Program& program, const execution::PersistentLayout& layout,
                     const PlannerOptions& options, std::size_t budget) {
  const Drafts drafts(program, layout, options.policy, options.rates, options.alignment);
  try {
    return meet(drafts, options, budget);
  } catch (const execution::Error& error) {
    if (error.exit() != execution::Exit::usage || !drafts.gradient_memory_reuse().any()) throw;
    PlannerOptions without = options;
    without.policy.reuse_gradient_memory = false;
    const Drafts all_move(program, layout, without.policy, options.rates, options.alignment);
    try {
      Attempt made = meet(all_move, without, budget);
      made.choice.reuse_gradient_memory = false;
      return made;
    } catch (const execution::Error&) {
      // The first is thrown: what lies in gradient memory needs the least.
    }
    throw;
  }
}

/// Not all that has a place there lies there: see GradientMemoryReuse::leave_in_time.
void name_who_lies_in_gradient_memory(const Program& program, const Plan& plan, Choice& choice) {
  for (const Place& place : plan.places)
    if (in_gradient_memory(program, place))
      choice.reasons[place.tensor.id] = Reason::in_gradient_memory;
}

}  // namespace

Plan make_plan(const Program& program, const execution::PersistentLayout& layout,
               const PlannerOptions& options, Choice* choice) {
  const std::size_t budget = transient_budget(options.policy, layout);
  require_homes(options.policy, layout);
  PlannerOptions all = options;
  all.policy.home_bytes = layout.host_bytes();
  if (all.given != nullptr)
    all.policy.reuse_gradient_memory =
        all.policy.reuse_gradient_memory && all.given->reuse_gradient_memory;
  Attempt made = meet_somehow(program, layout, all, budget);
  Plan& plan = made.plan;
  name_who_lies_in_gradient_memory(program, plan, made.choice);
  if (plan.device_bytes() <= options.most_device_bytes) {
    add_edges(program, plan, options.chains);
    const Prediction prediction = predict(program, plan, options.rates);
    plan.time_s = prediction.time_s;
    plan.exposed_s = prediction.exposed_s;
  }
  if (choice != nullptr) *choice = std::move(made.choice);
  return std::move(made.plan);
}

}  // namespace stowage::offload
