#include "forecast/layouts/fit.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "execution/error.hpp"
#include "execution/printable.hpp"
#include "forecast/plan/memory_table.hpp"
#include "forecast/plan/policies.hpp"
#include "inputs/deck/section.hpp"
#include "offload/offload_section.hpp"

namespace stowage::forecast {

namespace {

using offload::OffloadConfig;
using offload::Policy;

/// Where the line through two fits meets the memory; above the second.
std::int64_t guess(const LargestFit& one, const LargestFit& other, std::int64_t most,
                   std::int64_t memory) {
  const auto bytes = [](const LargestFit& of) { return static_cast<double>(of.fit.device_bytes); };
  const double each = (bytes(other) - bytes(one)) / static_cast<double>(other.size - one.size);
  const auto left = static_cast<double>(most - other.size);
  const double more = each > 0 ? (static_cast<double>(memory) - bytes(other)) / each : left;
  return other.size + std::max<std::int64_t>(1, static_cast<std::int64_t>(std::min(more, left)));
}

/// The policy that keeps so, with what a run saves where keys cannot say it.
Policy policy_of(const TrainerOptions& options, const Kept& kept) {
  const Policy& policy = options.planner.policy;
  if (kept.saved == Kept::Saved::stays || kept.saved == Kept::Saved::automatic) return policy;
  TrainerOptions plain = options;
  plain.state.host = {};
  const TrainerPlan plan(plain);
  const execution::Program& program = plan.training().front()->recorded.program;
  return kept.saved == Kept::Saved::again ? full_recompute(policy, program)
                                          : full_offload(policy, program);
}

/// The search of largest_fit, by a plan of a size.
std::optional<LargestFit> search(std::int64_t first, std::int64_t most, std::int64_t memory,
                                 const std::function<std::optional<Fit>(std::int64_t)>& plan) {
  std::optional<LargestFit> best;
  std::int64_t high = most + 1;  // does not fit
  const auto low = [&] { return best ? best->size : 0; };
  const auto fits = [&](std::int64_t size) {
    const std::optional<Fit> fit = plan(size);
    if (fit)
      best = {size, *fit};
    else
      high = size;
    return fit.has_value();
  };
  if (fits(std::min(first, most)) && 2 * low() <= most) {
    const LargestFit one = *best;
    if (fits(2 * low()) && low() < most) fits(guess(one, *best, most, memory));
  }
  for (std::int64_t step = 1; high > most && low() < most; step *= 2)
    fits(std::min(most, low() + step));
  for (std::int64_t step = 1; high - step > low() && !fits(high - step);) step *= 2;
  while (high - low() > 1) fits(low() + (high - low()) / 2);
  return best;
}

}  // namespace

std::vector<std::string> overrides_of(const Kept& kept, std::int64_t memory) {
  std::vector<std::string> keys{
      inputs::override_of(&OffloadConfig::states, fmt::format("[\"{}\"]", kept.states)),
      inputs::override_of(&OffloadConfig::recompute, "[]")};
  if (kept.saved == Kept::Saved::automatic) {
    keys.push_back(inputs::override_of(&OffloadConfig::kind, "auto"));
    keys.push_back(
        inputs::override_of(&OffloadConfig::device_budget_bytes, std::to_string(memory)));
  } else {
    keys.push_back(inputs::override_of(&OffloadConfig::kind, "none"));
  }
  return keys;
}

std::optional<Fit> plan_fit(const std::function<TrainerOptions()>& make, std::int64_t memory) {
  try {
    const TrainerPlan made(make());
    const std::size_t copy = made.options().planner.policy.state_copy_bytes;
    const Fit fit{.device_bytes = made.layout().bytes() + made.transient_bytes() + copy,
                  .host_bytes = made.host_bytes(),
                  .time_s = made.step_s(*made.training().back())};
    if (fit.device_bytes <= static_cast<std::size_t>(memory)) return fit;
  } catch (const execution::Error& error) {
    if (error.exit() != execution::Exit::usage) throw;
  }
  return std::nullopt;
}

std::optional<LargestFit> largest_fit(const Family& family, const Kept& kept, std::int64_t memory) {
  const std::vector<std::string> keys = overrides_of(kept, memory);
  return search(family.first, family.most, memory, [&](std::int64_t size) {
    execution::print_remark(fmt::format("# planning size {}: {}", size, kept.name));
    return plan_fit(
        [&] {
          TrainerOptions options = family.options(size, keys);
          options.planner.policy = policy_of(options, kept);
          return options;
        },
        memory);
  });
}

std::string fit_cells(const Fit& fit, bool timed) {
  return fmt::format("{:>12.3f}{:>10.3f}{:>13}", gib(fit.device_bytes), gib(fit.host_bytes),
                     timed ? fmt::format("{:.3f}", fit.time_s) : "-");
}

}  // namespace stowage::forecast
