#pragma once

#include <string>
#include <vector>

#include "inputs/deck/deck.hpp"
#include "results/result_set.hpp"

namespace stowage::run {

/// Every key of a deck with its value, as a result set stores them.
results::Fields config_fields(const inputs::Deck& deck);

/// The process grid of so many ranks, as a result set stores it.
results::Fields grid_fields(const inputs::Deck& deck, int ranks);

/// The same for people: "data 2, optimizer states sharded (ZeRO-1)".
std::string grid_text(const inputs::Deck& deck, int ranks);

/// What is known before anything is measured, of a run that a deck describes.
/// @param software versions of libraries that the drivers know
results::ResultHeader result_header(std::string driver, const inputs::Deck& deck,
                                    const results::RunInfo& run,
                                    std::vector<results::RankInfo> ranks,
                                    const results::Fields& software);

}  // namespace stowage::run
