#include "drivers/common/planned_rank.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "drivers/common/checkpoint_memory.hpp"
#include "drivers/common/data.hpp"
#include "drivers/common/machine.hpp"
#include "drivers/common/options.hpp"
#include "execution/error.hpp"
#include "inputs/deck/check.hpp"

namespace stowage::drivers {

namespace {

PlannedData as_the_deck_says(const inputs::Deck& deck, const std::string& unopened) {
  std::int64_t documents = std::max(deck.get<std::int64_t>("data.max_documents"),
                                    deck.get<std::int64_t>("train.micro_batch_size"));
  for (const std::int64_t graphed : deck.get<std::vector<std::int64_t>>("graphs.max_packed_seqs"))
    documents = std::max(documents, graphed);
  const bool evaluates = deck.get<double>("data.held_out_fraction") > 0 ||
                         !deck.get<std::string>("data.validation_path").empty();
  return {capacities(deck, documents), 0, evaluates, unopened};
}

}  // namespace

std::string PlannedData::text() const {
  if (unopened.empty()) return {};
  return fmt::format("# documents of a microbatch: {} at most, as the deck says; of the data: {}\n",
                     capacities.back(), unopened);
}

PlannedData planned_data(const inputs::Deck& deck) {
  try {
    const Data data = open_data(deck, {});
    return {capacities(deck, data.max_documents()), data.max_pairs(), data.held_out != nullptr, {}};
  } catch (const execution::Error& error) {
    if (error.exit() != execution::Exit::usage && error.exit() != execution::Exit::environment)
      throw;
    return as_the_deck_says(deck, error.what());
  }
}

training::TrainerOptions rank_options(const inputs::Deck& deck, const PlannedData& data, int stage,
                                      std::int64_t least_ranks) {
  std::int64_t asked = std::max<std::int64_t>(1, deck.get<std::int64_t>("parallel.data"));
  for (const char* axis :
       {"parallel.tensor", "parallel.context", "parallel.expert", "parallel.pipeline"})
    asked *= deck.get<std::int64_t>(axis);
  const std::int64_t ranks = std::max(least_ranks, asked);
  const std::int64_t microbatches = inputs::check_ranks(deck, ranks);
  return rank_options(deck, data, grid_shape(deck, static_cast<int>(ranks)), stage, microbatches);
}

training::TrainerOptions rank_options(const inputs::Deck& deck, const PlannedData& data,
                                      const parallel::GridShape& shape, int stage,
                                      std::int64_t microbatches) {
  parallel::PerAxis place;
  place[parallel::Axis::pipeline] = stage;
  training::TrainerOptions options = trainer_options(
      deck, microbatches, parallel::planned_ranks(shape, parallel::rank_at(shape, place)),
      planned_order(deck));
  options.capacities = data.capacities;
  options.step.pairs = data.pairs;
  options.evaluation_microbatches = data.evaluates ? static_cast<int>(microbatches) : 0;
  options.state_copy = copies_within_device(deck);
  return options;
}

std::int64_t usable_memory(const inputs::Deck& deck, std::string_view option) {
  constexpr std::int64_t kReserve = std::int64_t{2} << 30;
  const std::int64_t bytes = deck.get<std::int64_t>("machine.device_memory_bytes") - kReserve;
  if (bytes <= 0)
    execution::throw_usage(
        "{}: {}: say how much memory a device has, or include one of inputs/machines/", option,
        deck.cite("machine.device_memory_bytes"));
  return bytes;
}

}  // namespace stowage::drivers
