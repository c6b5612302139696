#include "run/record/result_config.hpp"

#include <type_traits>
#include <utility>
#include <variant>

#include "forecast/plan/options.hpp"
#include "forecast/plan/parallel_section.hpp"

namespace stowage::run {
namespace {

/// A scalar as it is, a list as TOML text.
results::Value attribute(const inputs::Value& value) {
  return std::visit(
      [&](const auto& held) -> results::Value {
        if constexpr (std::is_constructible_v<results::Value, decltype(held)>)
          return held;
        else
          return inputs::to_toml(value);
      },
      value);
}

}  // namespace

results::Fields config_fields(const inputs::Deck& deck) {
  results::Fields fields;
  for (const inputs::Deck::Row& row : deck.rows())
    fields.push_back({std::string(row.key), attribute(row.value)});
  return fields;
}

results::Fields grid_fields(const inputs::Deck& deck, int ranks) {
  using parallel::Axis;
  const parallel::GridShape shape = forecast::grid_shape(deck, ranks);
  results::Fields fields{{"shape", shape.describe()}};
  for (const Axis axis : parallel::kAllAxes)
    fields.push_back({std::string(parallel::name(axis)), std::int64_t{shape[axis]}});
  fields.push_back({"zero", inputs::read(deck, &forecast::ParallelConfig::zero)});
  return fields;
}

results::ResultHeader result_header(std::string driver, const inputs::Deck& deck,
                                    const results::RunInfo& run,
                                    std::vector<results::RankInfo> ranks,
                                    const results::Fields& software) {
  const auto size = static_cast<int>(ranks.size());
  return {.driver = std::move(driver),
          .deck_given = deck.given(),
          .deck_resolved = deck.text(),
          .config = config_fields(deck),
          .numerics_sha256 = deck.numerics_sha256(),
          .run = run,
          .ranks = std::move(ranks),
          .software = results::software(software),
          .files = {},
          .grid = grid_fields(deck, size)};
}

std::string grid_text(const inputs::Deck& deck, int ranks) {
  const bool zero = inputs::read(deck, &forecast::ParallelConfig::zero) == 1;
  return forecast::grid_shape(deck, ranks).describe() +
         (zero ? ", optimizer states sharded (ZeRO-1)" : "");
}

}  // namespace stowage::run
