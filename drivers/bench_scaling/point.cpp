#include "drivers/bench_scaling/point.hpp"

#include <fmt/core.h>

#include "execution/error.hpp"
#include "forecast/plan/options.hpp"
#include "inputs/data/run_section.hpp"
#include "inputs/deck/check.hpp"
#include "layers/model/model.hpp"
#include "offload/offload_section.hpp"
#include "parallel/groups/ranks.hpp"
#include "run/machine/machine.hpp"

namespace stowage::drivers {
namespace {

/// The batch of a point: on the fewest ranks that of the deck, with weak scaling as much a rank.
std::int64_t batch(const inputs::Deck& deck, const std::string& scale, const Layout& layout,
                   int fewest) {
  const auto given = inputs::read(deck, &inputs::TrainConfig::global_batch_size);
  if (scale == "strong") return given;
  if (given * layout.ranks() % fewest != 0)
    execution::throw_usage(
        "{}: layout {} has {} ranks, the smallest {}: weak scaling has no whole batch for it",
        inputs::cite(deck, &inputs::TrainConfig::global_batch_size), layout.name(), layout.ranks(),
        fewest);
  return given * layout.ranks() / fewest;
}

inputs::Deck deck_of(const inputs::Deck& deck, std::vector<std::string> overrides,
                     const std::string& mode, std::int64_t batch) {
  overrides.push_back(inputs::override_of(&offload::GraphConfig::mode, mode));
  overrides.push_back(
      inputs::override_of(&inputs::TrainConfig::global_batch_size, std::to_string(batch)));
  if (mode == "scopes" && inputs::read(deck, &offload::GraphConfig::scopes).empty())
    overrides.push_back(inputs::override_of(&offload::GraphConfig::scopes, "[\"layer\"]"));
  return inputs::Deck::parse(deck.text(), "the deck", overrides);
}

/// Refuses what does not divide before anything is measured.
void require_possible(const ScalingPoint& point) {
  try {
    const std::int64_t microbatches = inputs::check_ranks(point.deck, point.layout.ranks());
    const forecast::TrainerOptions options = forecast::trainer_options(
        point.deck, {}, microbatches, parallel::planned_ranks(point.layout.shape, 0),
        forecast::planned_order(point.deck));
    (void)forecast::decide_open_choices(options);
    (void)layers::Model(options.model, options.precision, 1, options.sharing.ranks);
  } catch (const execution::Error& error) {
    if (error.exit() != execution::Exit::usage) throw;
    execution::throw_usage("{}: {}", point.name(), error.what());
  }
}

}  // namespace

inputs::Deck without_layout(const inputs::Deck& deck) {
  const std::vector<std::string> overrides = Layout{}.overrides();
  return inputs::Deck::parse(deck.text(), "the deck", overrides);
}

ScalingPoint scaling_point(const inputs::Deck& deck, const std::string& scale, const Layout& layout,
                           const std::string& mode, std::int64_t batch) {
  return {scale, layout, mode, deck_of(deck, layout.overrides(), mode, batch)};
}

std::vector<ScalingPoint> scaling_points(const inputs::Deck& deck, const ScalingOptions& options) {
  const int fewest = options.layouts.front().ranks();
  std::vector<ScalingPoint> points;
  for (const std::string& scale : options.scales)
    for (const Layout& layout : options.layouts)
      for (const std::string& mode : options.modes) {
        ScalingPoint point =
            scaling_point(deck, scale, layout, mode, batch(deck, scale, layout, fewest));
        require_possible(point);
        points.push_back(std::move(point));
      }
  return points;
}

}  // namespace stowage::drivers
