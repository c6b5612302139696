#include "forecast/layouts/remedies.hpp"

#include <fmt/core.h>

#include <optional>

#include "forecast/layouts/fit.hpp"
#include "forecast/layouts/pasted.hpp"
#include "forecast/plan/memory_fit.hpp"
#include "forecast/plan/memory_table.hpp"
#include "inputs/data/run_section.hpp"
#include "layers/state/state_type.hpp"
#include "offload/offload_section.hpp"

namespace stowage::forecast {
namespace {

using Keys = std::vector<std::string>;

/// From what changes least to what changes most.
std::vector<Keys> remedies(std::int64_t memory) {
  using offload::OffloadConfig;
  const std::string states = inputs::override_of(&OffloadConfig::states, "auto");
  const Keys automatic{
      inputs::override_of(&OffloadConfig::kind, "auto"),
      inputs::override_of(&OffloadConfig::device_budget_bytes, std::to_string(memory))};
  const Keys away{automatic[0], automatic[1], states};
  return {automatic,
          away,
          {automatic[0], automatic[1], states,
           inputs::override_of(&layers::StateType::format, layers::kStatesOfBf16.name)}};
}

std::string price(const inputs::Deck& deck, const Fit& fit) {
  std::string text = fmt::format("{:.1f} GiB pinned", gib(fit.host_bytes));
  if (!knows_rates(deck)) return text;
  const auto train = inputs::read<inputs::TrainConfig>(deck);
  const auto tokens = static_cast<double>(train.global_batch_size * train.seq_length);
  return text +
         fmt::format(", a step of {:.3f} s, {:.0f} tokens/s", fit.time_s, tokens / fit.time_s);
}

}  // namespace

std::string remedies_text(const inputs::Deck& deck, const PlannedData& data, int stage) {
  const std::int64_t memory = usable_memory(deck, "the plan");
  std::string text;
  for (const Keys& keys : remedies(memory)) {
    const std::optional<Fit> fit = plan_fit(
        [&] {
          return rank_options(inputs::Deck::parse(deck.text(), "the deck", keys), data, stage);
        },
        memory);
    if (fit) text += fmt::format("  {}:\n    {}\n", pasted(keys), price(deck, *fit));
  }
  return "# it fits by\n" + text + "  --ranks N, which finds layouts of N devices\n";
}

}  // namespace stowage::forecast
