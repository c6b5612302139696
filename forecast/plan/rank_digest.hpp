#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "execution/digest.hpp"
#include "forecast/plan/planned_rank.hpp"
#include "inputs/deck/deck.hpp"

namespace stowage::forecast {

/// What one rank of a deck's run records and plans, as text.
struct RankText {
  struct Planned {
    std::string name;  ///< "train, 1 documents, class 0", "evaluate, 1 documents"
    execution::ProgramText program;
    execution::PlanText plan;
  };
  std::string layout;             ///< of what outlives a step
  std::vector<Planned> programs;  ///< training by class and capacity, then evaluation
};

/// Plans a rank in a deck's stage of a pipeline, of the grid that the deck asks for. Files of data
/// and the machine have no part in it: documents are as many as the deck says.
/// @throws Error (exit 2) as the run would
RankText rank_text(const inputs::Deck& deck, int stage);

/// The digests of all stages of a deck's pipeline, or of one: a line for the layout and for each
/// program, and with `ops` for each op and part of a plan.
/// @param stage -1: all
std::string digest_text(const inputs::Deck& deck, int stage, bool ops);

}  // namespace stowage::forecast
