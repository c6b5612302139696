#include "forecast/layouts/largest.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <vector>

#include "execution/error.hpp"
#include "forecast/layouts/fit.hpp"
#include "forecast/layouts/training_cost.hpp"
#include "forecast/plan/memory_fit.hpp"
#include "forecast/plan/parallel_section.hpp"
#include "forecast/plan/planned_rank.hpp"
#include "forecast/rates/machine_section.hpp"
#include "inputs/data/run_section.hpp"
#include "layers/recording/config_section.hpp"

namespace stowage::forecast {
namespace {

using inputs::Deck;
using layers::ModelConfig;

using Keys = std::vector<std::string>;

Deck with(const Deck& deck, const Keys& keys) { return Deck::parse(deck.text(), "the deck", keys); }

TrainerOptions options_of(const Deck& deck) {
  TrainerOptions options = rank_options(deck, described_data(deck));
  options.evaluation_microbatches = 0;
  return options;
}

/// A family with how its table names it.
struct Table {
  Family family;
  std::string title;                                 ///< of the first line
  std::string columns;                               ///< that say the size
  std::function<std::string(std::int64_t)> size;     ///< cells of these
  std::function<std::int64_t(std::int64_t)> tokens;  ///< of a step of all ranks
  std::string none;                                  ///< "not one layer"
};

std::string on_machine(const Deck& deck) {
  const auto machine = inputs::read(deck, &MachineConfig::name);
  return machine.empty() ? "device" : machine;
}

// ------------------------------------------------------------------------------------------ length

constexpr std::int64_t kTokens = 1024;  ///< of a rank between lengths tried
constexpr std::int64_t kMostTokens = (std::int64_t{1} << 31) - 1;
constexpr std::int64_t kMostLengths = std::int64_t{1} << 14;

/// The last of the ranks that share the sequence, whose queries see all keys.
parallel::Ranks busiest(const parallel::GridShape& grid) {
  parallel::PerAxis place;
  place[parallel::Axis::context] = grid[parallel::Axis::context] - 1;
  return parallel::planned_ranks(grid, parallel::rank_at(grid, place));
}

Table of_length(const Deck& deck) {
  const parallel::GridShape grid = rank_options(deck, {}).sharing.ranks.shape;
  if (grid[parallel::Axis::pipeline] > 1)
    execution::throw_usage("--longest: {}: one sequence keeps but one stage busy; allowed: 1",
                           inputs::cite(deck, &ParallelConfig::pipeline));
  const std::int64_t step = kTokens * grid[parallel::Axis::context];
  const auto options = [&deck, grid, step](std::int64_t size, const Keys& keys) {
    TrainerOptions made = rank_options(with(deck, keys), {});
    made.evaluation_microbatches = 0;
    made.step.microbatches = 1;
    made.capacities = {1};
    made.sharing.ranks = busiest(grid);
    made.step.sequence = made.step.tokens = size * step;
    return made;
  };
  const std::string ranks = grid.describe();
  return {
      .family = {.most = std::min(kMostLengths, kMostTokens / step), .options = options},
      .title = fmt::format("longest sequence of {} on {} {}",
                           inputs::read(deck, &inputs::RunConfig::name),
                           ranks == "1 rank" ? "one" : ranks + ", each one", on_machine(deck)),
      .columns = fmt::format("{:>10}", "tokens"),
      .size = [step](std::int64_t size) { return fmt::format("{:>10}", size * step); },
      .tokens = [step](std::int64_t size) { return size * step; },
      .none = fmt::format("not {} tokens", step),
  };
}

// ----------------------------------------------------------------------------------- depth, width

constexpr std::int64_t kMostLayers = 1024;
constexpr std::int64_t kColumns = 128;  ///< of hidden_size between widths tried
constexpr std::int64_t kMostWidths = 512;

/// The pattern without cuts, over and over, as deep as asked.
std::string pattern_of(const Deck& deck, std::int64_t layers) {
  std::string letters = inputs::read(deck, &ModelConfig::pattern), pattern;
  std::erase(letters, '|');
  for (std::int64_t i = 0; i < layers; ++i)
    pattern += letters[static_cast<std::size_t>(i) % letters.size()];
  return pattern;
}

Keys deeper(const Deck& deck, std::int64_t layers) {
  return {inputs::override_of(&ModelConfig::pattern, pattern_of(deck, layers))};
}

Keys wider(const Deck& deck, std::int64_t size) {
  const std::int64_t now = inputs::read(deck, &ModelConfig::width), width = size * kColumns;
  Keys keys{inputs::override_of(&ModelConfig::width, std::to_string(width))};
  const auto grow = [&](auto member, std::int64_t grain) {
    const auto value = static_cast<std::int64_t>(inputs::read(deck, member));
    if (value == 0) return;
    const std::int64_t grains = (value * width + now * grain - 1) / (now * grain);
    keys.push_back(inputs::override_of(member, std::to_string(grains * grain)));
  };
  grow(&ModelConfig::Attention::heads, inputs::read(deck, &ModelConfig::Attention::kv_heads));
  grow(&ModelConfig::Mamba::heads, inputs::read(deck, &ModelConfig::Mamba::groups));
  grow(&ModelConfig::GatedDelta::value_heads,
       inputs::read(deck, &ModelConfig::GatedDelta::key_heads));
  grow(&ModelConfig::Mlp::ffn, kColumns);
  grow(&ModelConfig::Moe::ffn, kColumns);
  grow(&ModelConfig::Moe::latent, kColumns);
  grow(&ModelConfig::Moe::shared_ffn, kColumns);
  return keys;
}

/// Models of one rank. @param keys of a size
Table of_model(const Deck& deck, const std::function<Keys(std::int64_t)>& keys) {
  const parallel::GridShape grid = rank_options(deck, described_data(deck)).sharing.ranks.shape;
  if (grid.ranks() > 1)
    execution::throw_usage("--largest: is of one rank; the deck asks for {}", grid.describe());
  const auto train = inputs::read<inputs::TrainConfig>(deck);
  const auto options = [&deck, keys](std::int64_t size, const Keys& more) {
    Keys all = keys(size);
    all.insert(all.end(), more.begin(), more.end());
    return options_of(with(deck, all));
  };
  const auto parameters = [&deck, keys](std::int64_t size) {
    return count_text(model_size(with(deck, keys(size))).parameters);
  };
  // The automatic policy plans such depths for minutes: stowage_plan of a size does it.
  constexpr std::size_t kQuick = 3;
  return {.family = {.ways = std::span(kWaysToKeep).first(kQuick), .options = options},
          .title = {},
          .columns = {},
          .size = parameters,
          .tokens = [tokens = train.global_batch_size * train.seq_length](auto) { return tokens; },
          .none = {}};
}

Table of_depth(const Deck& deck) {
  Table table = of_model(deck, [&deck](std::int64_t layers) { return deeper(deck, layers); });
  table.family.first = model_config(deck).layers();
  table.family.most = kMostLayers;
  table.title = fmt::format(
      "deepest model of the layers of {}, {} over and over, on one {}; {} "
      "tokens a step",
      inputs::read(deck, &inputs::RunConfig::name), inputs::read(deck, &ModelConfig::pattern),
      on_machine(deck), table.tokens(0));
  table.columns = fmt::format("{:>10}{:>12}", "layers", "parameters");
  table.size = [parameters = table.size](std::int64_t layers) {
    const std::string bound = layers == kMostLayers ? ">= " : "";
    return fmt::format("{:>10}{:>12}", fmt::format("{}{}", bound, layers), parameters(layers));
  };
  table.none = "not one layer";
  return table;
}

Table of_width(const Deck& deck) {
  Table table = of_model(deck, [&deck](std::int64_t size) { return wider(deck, size); });
  table.family.first =
      std::max<std::int64_t>(1, inputs::read(deck, &ModelConfig::width) / kColumns);
  table.family.most = kMostWidths;
  table.title =
      fmt::format("widest model of {}, of the {} layers {}, on one {}; {} tokens a step",
                  inputs::read(deck, &inputs::RunConfig::name), model_config(deck).layers(),
                  inputs::read(deck, &ModelConfig::pattern), on_machine(deck), table.tokens(0));
  table.columns = fmt::format("{:>13}{:>12}", "hidden_size", "parameters");
  table.size = [parameters = table.size](std::int64_t size) {
    return fmt::format("{:>13}{:>12}", size * kColumns, parameters(size));
  };
  table.none = fmt::format("not {} columns", kColumns);
  return table;
}

}  // namespace

Growing parse_growing(const std::string& word) {
  if (word == "depth") return Growing::depth;
  if (word == "width") return Growing::width;
  execution::throw_usage("--largest {}: allowed: depth, width", word);
}

std::string largest_text(const Deck& deck, Growing growing) {
  const std::int64_t memory =
      usable_memory(deck, growing == Growing::length ? "--longest" : "--largest");
  const Table table = growing == Growing::length  ? of_length(deck)
                      : growing == Growing::depth ? of_depth(deck)
                                                  : of_width(deck);
  const bool timed = knows_rates(deck);
  std::string text =
      fmt::format("# {}\n  {:<20}{}{:>12}{:>10}{:>13}{:>12}\n", table.title, "what is saved",
                  table.columns, "device GiB", "host GiB", "predicted s", "tokens/s");
  // What the deck itself is refused for has another cause than its size.
  (void)table.family.options(table.family.first, {});
  for (const Kept& kept : table.family.ways) {
    const std::optional<LargestFit> best = largest_fit(table.family, kept, memory);
    if (!best) {
      text += fmt::format("  {:<20} {}\n", kept.name, table.none);
      continue;
    }
    const auto tokens = static_cast<double>(table.tokens(best->size));
    text += fmt::format("  {:<20}{}{}{:>12}\n", kept.name, table.size(best->size),
                        fit_cells(best->fit, timed),
                        timed ? fmt::format("{:.0f}", tokens / best->fit.time_s) : "-");
  }
  return text;
}

}  // namespace stowage::forecast
