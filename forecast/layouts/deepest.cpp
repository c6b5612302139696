#include "forecast/layouts/deepest.hpp"

#include <fmt/core.h>

#include <iterator>
#include <optional>
#include <vector>

#include "execution/error.hpp"
#include "execution/printable.hpp"
#include "forecast/layouts/fit.hpp"
#include "forecast/layouts/training_cost.hpp"
#include "forecast/plan/memory_fit.hpp"
#include "forecast/plan/parallel_section.hpp"
#include "forecast/plan/planned_rank.hpp"
#include "forecast/plan/policies.hpp"
#include "forecast/rates/machine_section.hpp"
#include "inputs/data/run_section.hpp"
#include "layers/recording/config_section.hpp"
#include "offload/offload_section.hpp"

namespace stowage::forecast {
namespace {

using layers::ModelConfig;
using offload::Policy;

constexpr std::int64_t kMostLayers = 1024;

/// What is kept, by a row of the table.
struct Kept {
  std::string_view name;
  bool again = false;   ///< what can be is computed again
  bool states = false;  ///< optimizer states are on the host
};
constexpr Kept kRows[] = {{.name = "all stays"},
                          {.name = "all computed again", .again = true},
                          {.name = "and states leave", .again = true, .states = true}};

class Deepest {
 public:
  explicit Deepest(const inputs::Deck& deck)
      : deck_(deck),
        pattern_(inputs::read(deck, &ModelConfig::pattern)),
        memory_(usable_memory(deck, "--deepest")) {
    std::erase(pattern_, '|');
    const parallel::GridShape shape = rank_options(deck, described_data(deck)).sharing.ranks.shape;
    if (shape.ranks() > 1)
      execution::throw_usage("--deepest: is of one rank; the deck asks for {}", shape.describe());
    // As deep as the deck is: what is refused here has another cause than its depth.
    (void)again(options_of(deck_of(depth(), kRows[0])));
  }

  inputs::Deck deck_of(std::int64_t layers, const Kept& kept) const {
    std::string pattern;
    for (std::int64_t i = 0; i < layers; ++i)
      pattern += pattern_[static_cast<std::size_t>(i) % pattern_.size()];
    const std::vector<std::string> overrides{
        inputs::override_of(&ModelConfig::pattern, pattern),
        inputs::override_of(&offload::OffloadConfig::states, kept.states ? "[\"all\"]" : "[]")};
    return inputs::Deck::parse(deck_.text(), "the deck", overrides);
  }

  std::optional<LargestFit> find(const Kept& kept) const {
    return largest_fit(depth(), kMostLayers, memory_, [&](std::int64_t layers) {
      execution::print_remark(fmt::format("# planning {} layers: {}", layers, kept.name));
      return plan_fit(
          [&] {
            TrainerOptions options = options_of(deck_of(layers, kept));
            if (kept.again) options.planner.policy = again(options);
            return options;
          },
          memory_);
    });
  }

 private:
  std::int64_t depth() const { return std::ssize(pattern_); }

  static TrainerOptions options_of(const inputs::Deck& deck) {
    TrainerOptions options = rank_options(deck, described_data(deck));
    options.evaluation_microbatches = 0;
    options.planner.policy = no_policy(options.planner.policy);
    return options;
  }

  static Policy again(const TrainerOptions& options) {
    const TrainerPlan plain(options);
    return full_recompute(options.planner.policy, plain.training().front()->recorded.program);
  }

  const inputs::Deck& deck_;
  std::string pattern_;
  std::int64_t memory_;
};

}  // namespace

std::string deepest_text(const inputs::Deck& deck) {
  const Deepest deepest(deck);
  const bool timed = knows_rates(deck);
  const auto machine = inputs::read(deck, &MachineConfig::name);
  const auto train = inputs::read<inputs::TrainConfig>(deck);
  const std::int64_t tokens = train.global_batch_size * train.seq_length;
  std::string text = fmt::format(
      "# deepest model of the layers of {}, {} over and over, on one {}; {} tokens a step\n"
      "  {:<20}{:>10}{:>12}{:>12}{:>10}{:>13}{:>12}\n",
      inputs::read(deck, &inputs::RunConfig::name), inputs::read(deck, &ModelConfig::pattern),
      machine.empty() ? "device" : machine, tokens, "what is saved", "layers", "parameters",
      "device GiB", "host GiB", "predicted s", "tokens/s");
  for (const Kept& kept : kRows) {
    const std::optional<LargestFit> best = deepest.find(kept);
    if (!best) {
      text += fmt::format("  {:<20} not one layer\n", kept.name);
      continue;
    }
    text += fmt::format(
        "  {:<20}{:>10}{:>12}{}{:>12}\n", kept.name,
        fmt::format("{}{}", best->size == kMostLayers ? ">= " : "", best->size),
        count_text(model_size(deepest.deck_of(best->size, kept)).parameters),
        fit_cells(best->fit, timed),
        timed ? fmt::format("{:.0f}", static_cast<double>(tokens) / best->fit.time_s) : "-");
  }
  return text;
}

}  // namespace stowage::forecast
