#pragma once

#include <string>
#include <vector>

#include "forecast/pipeline/planned_pipeline.hpp"
#include "forecast/plan/planned_rank.hpp"
#include "inputs/deck/deck.hpp"

namespace stowage::forecast {

/// What one rank of a pipeline is planned to do, alone, with times of its own.
struct RankPlan {
  /// A tensor, or a part of one, on its way between the device and the host.
  struct Copy {
    bool out = true;
    std::string name;
    double begin_s = 0;
    double time_s = 0;
  };

  std::vector<PlannedPass> passes;  ///< in the order of its schedule
  std::vector<Copy> copies;
};

/// @param rank of the pipeline
RankPlan plan_rank(const inputs::Deck& deck, const PlannedData& data, int rank);

/// Copies where they lie in a pipeline's time: beside the same part of the same pass.
std::vector<RankPlan::Copy> copies_in(const Timeline::Rank& rank, const RankPlan& plan);

}  // namespace stowage::forecast
