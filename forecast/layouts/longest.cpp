#include "forecast/layouts/longest.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "execution/error.hpp"
#include "forecast/plan/memory_fit.hpp"
#include "forecast/plan/memory_table.hpp"
#include "forecast/plan/parallel_section.hpp"
#include "forecast/plan/planned_rank.hpp"
#include "forecast/plan/policies.hpp"
#include "forecast/plan/trainer_plan.hpp"
#include "forecast/rates/machine_section.hpp"
#include "inputs/data/run_section.hpp"

namespace stowage::forecast {
namespace {

using execution::Region;
using offload::Policy;

constexpr std::int64_t kStep = 1024;  ///< tokens of a rank between lengths tried
constexpr std::int64_t kMostTokens = (std::int64_t{1} << 31) - 1;
constexpr std::int64_t kMost = std::int64_t{1} << 14;  ///< lengths tried

/// What one step of one sequence needs.
struct Fit {
  std::int64_t tokens = 0;
  std::size_t device_bytes = 0;
  std::size_t host_bytes = 0;
  double time_s = 0;
};

class Longest {
 public:
  explicit Longest(const inputs::Deck& deck)
      : options_(rank_options(deck, {})),
        step_(kStep * context(options_.sharing.ranks)),
        memory_(usable_memory(deck, "--longest")) {
    options_.step.microbatches = 1;
    options_.evaluation_microbatches = 0;
    options_.capacities = {1};
    if (options_.sharing.ranks.shape[parallel::Axis::pipeline] > 1)
      execution::throw_usage("--longest: {}: one sequence keeps but one stage busy; allowed: 1",
                             inputs::cite(deck, &ParallelConfig::pipeline));
    options_.sharing.ranks = busiest(options_.sharing.ranks.shape);
    options_.planner.policy = no_policy(options_.planner.policy);
  }

  std::vector<std::pair<std::string, Policy>> policies() {
    const Policy keep = options_.planner.policy;
    TrainerOptions small = options_;
    small.step.sequence = small.step.tokens = step_;
    const TrainerPlan plan(small);
    const execution::Program& program = plan.training().front()->recorded.program;
    Policy automatic = keep;
    automatic.kind = Policy::Kind::automatic;
    automatic.device_budget_bytes = memory_;
    return {{"all stays", keep},
            {"all computed again", full_recompute(keep, program)},
            {"all leaves", full_offload(keep, program)},
            {"automatic", automatic}};
  }

  /// Doubles the length while it fits, then halves the step.
  std::optional<Fit> find(const Policy& policy) const {
    std::optional<Fit> best;
    std::int64_t length = 0;
    std::int64_t step = 1;
    for (; length + step <= kMost && (length + step) * step_ <= kMostTokens; step *= 2) {
      const std::optional<Fit> fit = plan(policy, (length + step) * step_);
      if (!fit) break;
      best = fit;
      length += step;
    }
    for (step /= 2; step > 0; step /= 2)
      if (const std::optional<Fit> fit = plan(policy, (length + step) * step_)) {
        best = fit;
        length += step;
      }
    return best;
  }

  std::int64_t step() const { return step_; }
  std::string ranks() const { return options_.sharing.ranks.shape.describe(); }

 private:
  static int context(const parallel::Ranks& ranks) { return ranks.shape[parallel::Axis::context]; }
  /// The last of the ranks that share the sequence, whose queries see all keys.
  static parallel::Ranks busiest(const parallel::GridShape& grid) {
    parallel::PerAxis place;
    place[parallel::Axis::context] = grid[parallel::Axis::context] - 1;
    return parallel::planned_ranks(grid, parallel::rank_at(grid, place));
  }

  std::optional<Fit> plan(const Policy& policy, std::int64_t tokens) const {
    TrainerOptions options = options_;
    options.step.sequence = options.step.tokens = tokens;
    options.planner.policy = policy;
    try {
      const TrainerPlan made(options);
      const execution::Plan& plan = made.training().front()->plan;
      const std::size_t copy = made.options().planner.policy.state_copy_bytes;
      const Fit fit{tokens, plan.device_bytes() + copy, plan.bytes[static_cast<int>(Region::host)],
                    plan.time_s};
      if (fit.device_bytes <= static_cast<std::size_t>(memory_)) return fit;
    } catch (const execution::Error& error) {
      if (error.exit() != execution::Exit::usage) throw;
    }
    return std::nullopt;
  }

  TrainerOptions options_;
  std::int64_t step_;  ///< tokens between lengths tried
  std::int64_t memory_;
};

}  // namespace

std::string longest_text(const inputs::Deck& deck) {
  Longest longest(deck);
  const bool timed = knows_rates(deck);
  const auto machine = inputs::read(deck, &MachineConfig::name);
  std::string text =
      fmt::format("# longest sequence of {} on {} {}\n  {:<20}{:>10}{:>12}{:>10}{:>13}{:>12}\n",
                  inputs::read(deck, &inputs::RunConfig::name),
                  longest.ranks() == "1 rank" ? "one" : longest.ranks() + ", each one",
                  machine.empty() ? "device" : machine, "what is saved", "tokens", "device GiB",
                  "host GiB", "predicted s", "tokens/s");
  for (const auto& [name, policy] : longest.policies()) {
    const std::optional<Fit> fit = longest.find(policy);
    if (!fit) {
      text += fmt::format("  {:<20} not {} tokens\n", name, longest.step());
      continue;
    }
    text += fmt::format(
        "  {:<20}{:>10}{:>12.3f}{:>10.3f}{:>13}{:>12}\n", name, fit->tokens, gib(fit->device_bytes),
        gib(fit->host_bytes), timed ? fmt::format("{:.3f}", fit->time_s) : "-",
        timed ? fmt::format("{:.0f}", static_cast<double>(fit->tokens) / fit->time_s) : "-");
  }
  return text;
}

}  // namespace stowage::forecast
