#pragma once

#include <string>
#include <vector>

#include "drivers/common/planned_rank.hpp"
#include "inputs/deck/deck.hpp"
#include "training/planned_pipeline.hpp"

namespace stowage::drivers {

/// What one rank of a pipeline is planned to do, alone, with times of its own.
struct RankPlan {
  /// A tensor, or a part of one, on its way between the device and the host.
  struct Copy {
    bool out = true;
    std::string name;
    double begin_s = 0;
    double time_s = 0;
  };

  std::vector<training::PlannedPass> passes;  ///< in the order of its turns
  std::vector<Copy> copies;
};

/// @param rank of the pipeline
RankPlan plan_rank(const inputs::Deck& deck, const PlannedData& data, int rank);

/// Copies where they lie in a pipeline's time: beside the same part of the same pass.
std::vector<RankPlan::Copy> copies_in(const training::Timeline::Rank& rank, const RankPlan& plan);

}  // namespace stowage::drivers
