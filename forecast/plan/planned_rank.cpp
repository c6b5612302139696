#include "forecast/plan/planned_rank.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "execution/error.hpp"
#include "forecast/rates/machine_section.hpp"
#include "inputs/data/data_section.hpp"
#include "inputs/data/run_section.hpp"
#include "inputs/deck/check.hpp"

namespace stowage::forecast {

namespace {

PlannedData as_the_deck_says(const inputs::Deck& deck, const std::string& unopened) {
  const auto data = inputs::read<inputs::DataConfig>(deck);
  std::int64_t documents =
      std::max(data.max_documents, read(deck, &inputs::TrainConfig::micro_batch_size));
  for (const std::int64_t graphed : data.graphed_documents)
    documents = std::max(documents, graphed);
  return {{.capacities = capacities(deck, documents),
           .evaluates = data.held_out_fraction > 0 || !data.validation_path.empty(),
           .saves = true},
          unopened};
}

}  // namespace

std::string PlannedData::text() const {
  if (unopened.empty()) return {};
  return fmt::format("# documents of a microbatch: {} at most, as the deck says; of the data: {}\n",
                     needs.capacities.back(), unopened);
}

PlannedData planned_data(const inputs::Deck& deck) {
  try {
    return {training_needs(deck, open_data(deck)), {}};
  } catch (const execution::Error& error) {
    if (error.exit() != execution::Exit::usage && error.exit() != execution::Exit::environment)
      throw;
    return as_the_deck_says(deck, error.what());
  }
}

PlannedData described_data(const inputs::Deck& deck) {
  if (read(deck, &inputs::DataConfig::source) == inputs::SourceKind::synthetic)
    return planned_data(deck);
  return as_the_deck_says(deck, "not asked");
}

TrainerOptions rank_options(const inputs::Deck& deck, const PlannedData& data, int stage,
                            std::int64_t least_ranks) {
  const auto grid = inputs::read<ParallelConfig>(deck);
  const std::int64_t ranks =
      std::max(least_ranks, std::max<std::int64_t>(1, grid.data) * grid.replica());
  const std::int64_t microbatches = inputs::check_ranks(deck, ranks);
  return rank_options(deck, data, grid_shape(deck, static_cast<int>(ranks)), stage, microbatches);
}

TrainerOptions rank_options(const inputs::Deck& deck, const PlannedData& data,
                            const parallel::GridShape& shape, int stage,
                            std::int64_t microbatches) {
  parallel::PerAxis place;
  place[parallel::Axis::pipeline] = stage;
  return trainer_options(deck, data.needs, microbatches,
                         parallel::planned_ranks(shape, parallel::rank_at(shape, place)),
                         planned_order(deck));
}

std::int64_t usable_memory(const inputs::Deck& deck, std::string_view option) {
  constexpr std::int64_t kReserve = std::int64_t{2} << 30;
  const std::int64_t bytes = read(deck, &MachineConfig::device_memory_bytes) - kReserve;
  if (bytes + kReserve > 0 && bytes <= 0)
    execution::throw_usage("{}: {}: drivers and libraries need {} of it", option,
                           cite(deck, &MachineConfig::device_memory_bytes), kReserve);
  if (bytes <= 0)
    execution::throw_usage(
        "{}: {}: say how much memory a device has, or include one of inputs/machines/ (in "
        "stowage_plan: --machine NAME)",
        option, cite(deck, &MachineConfig::device_memory_bytes));
  return bytes;
}

}  // namespace stowage::forecast
