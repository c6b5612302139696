#include "forecast/layouts/longest.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "execution/error.hpp"
#include "forecast/layouts/fit.hpp"
#include "forecast/plan/memory_fit.hpp"
#include "forecast/plan/parallel_section.hpp"
#include "forecast/plan/planned_rank.hpp"
#include "forecast/plan/policies.hpp"
#include "forecast/plan/trainer_plan.hpp"
#include "forecast/rates/machine_section.hpp"
#include "inputs/data/run_section.hpp"

namespace stowage::forecast {
namespace {

using offload::Policy;

constexpr std::int64_t kStep = 1024;  ///< tokens of a rank between lengths tried
constexpr std::int64_t kMostTokens = (std::int64_t{1} << 31) - 1;
constexpr std::int64_t kMost = std::int64_t{1} << 14;  ///< lengths tried

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

  /// Of tokens.
  std::optional<LargestFit> find(const Policy& policy) const {
    std::optional<LargestFit> best =
        largest_fit(1, std::min(kMost, kMostTokens / step_), memory_, [&](std::int64_t length) {
          return plan_fit(
              [&] {
                TrainerOptions options = options_;
                options.step.sequence = options.step.tokens = length * step_;
                options.planner.policy = policy;
                return options;
              },
              memory_);
        });
    if (best) best->size *= step_;
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
    const std::optional<LargestFit> best = longest.find(policy);
    if (!best) {
      text += fmt::format("  {:<20} not {} tokens\n", name, longest.step());
      continue;
    }
    text += fmt::format(
        "  {:<20}{:>10}{}{:>12}\n", name, best->size, fit_cells(best->fit, timed),
        timed ? fmt::format("{:.0f}", static_cast<double>(best->size) / best->fit.time_s) : "-");
  }
  return text;
}

}  // namespace stowage::forecast
