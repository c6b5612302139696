#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "forecast/plan/options.hpp"
#include "inputs/deck/deck.hpp"

namespace stowage::forecast {

/// What a plan must know of a run's data.
struct PlannedData {
  RunNeeds needs;
  std::string unopened;  ///< why the data could not say; empty: they did

  /// A line that says so, or nothing.
  std::string text() const;
};

/// Opens a deck's data, as its run does. Where they are not there, or cannot be served as the deck
/// asks, a microbatch has as many documents as the deck says, at least one for each sequence, and
/// there is enough to evaluate if the deck holds data out.
PlannedData planned_data(const inputs::Deck& deck);
/// The same without a look at files: of synthetic data all is known, of others what the deck says.
PlannedData described_data(const inputs::Deck& deck);

/// What one rank of a deck's run is made of, without the others: communication between ranks are
/// ops with their bytes that nobody can launch.
/// @param stage of the pipeline  @param least_ranks of the job; the deck may ask for more
TrainerOptions rank_options(const inputs::Deck& deck, const PlannedData& data, int stage = 0,
                            std::int64_t least_ranks = 1);
/// The same for a grid that is not the deck's. @param microbatches of a step on one rank
TrainerOptions rank_options(const inputs::Deck& deck, const PlannedData& data,
                            const parallel::GridShape& shape, int stage, std::int64_t microbatches);

/// Device memory that a plan may take: machine.device_memory_bytes without what drivers, libraries
/// and graphs need. @throws Error (exit 2) that names `option` if it is not known
std::int64_t usable_memory(const inputs::Deck& deck, std::string_view option);

}  // namespace stowage::forecast
