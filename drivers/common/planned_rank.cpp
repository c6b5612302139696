#include "drivers/common/planned_rank.hpp"

#include <algorithm>

#include "drivers/common/data.hpp"
#include "drivers/common/options.hpp"
#include "execution/error.hpp"
#include "inputs/deck/check.hpp"

namespace stowage::drivers {

layers::TrainerOptions rank_options(const inputs::Deck& deck, int stage, std::int64_t least_ranks) {
  std::int64_t asked = std::max<std::int64_t>(1, deck.get<std::int64_t>("parallel.data"));
  for (const char* axis :
       {"parallel.tensor", "parallel.context", "parallel.expert", "parallel.pipeline"})
    asked *= deck.get<std::int64_t>(axis);
  const std::int64_t ranks = std::max(least_ranks, asked);
  const std::int64_t microbatches = inputs::check_ranks(deck, ranks);
  const parallel::GridShape shape = grid_shape(deck, static_cast<int>(ranks));
  parallel::PerAxis place;
  place[parallel::Axis::pipeline] = stage;
  layers::TrainerOptions options = trainer_options(
      deck, microbatches, parallel::planned_ranks(shape, parallel::rank_at(shape, place)));
  const auto graphed = deck.get<std::vector<std::int64_t>>("graphs.max_packed_seqs");
  std::int64_t documents = std::max(deck.get<std::int64_t>("data.max_documents"),
                                    deck.get<std::int64_t>("train.micro_batch_size"));
  for (const std::int64_t capacity : graphed) documents = std::max(documents, capacity);
  options.capacities = capacities(deck, documents);
  options.evaluation_microbatches = 0;
  return options;
}

}  // namespace stowage::drivers
