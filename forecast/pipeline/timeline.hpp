#pragma once

#include <vector>

#include "layers/schedule/pipeline.hpp"

namespace stowage::forecast {

/// When each rank of a pipeline does what.
struct Timeline {
  struct Span {
    double begin_s = -1;
    double end_s = -1;
  };
  struct Rank {
    std::vector<layers::Pass> passes;
    std::vector<Span> spans;  ///< by pass
    double busy_s = 0;        ///< of passes
  };

  std::vector<Rank> ranks;
  double time_s = 0;  ///< until the last rank is done

  /// The part of the time that ranks wait.
  double bubble() const;
};

/// Follows all ranks: a pass starts when the one before it is done and what it is given has come;
/// an exchange, beside passes, when the one before it is done, what it sends is made and its peers
/// have come to theirs.
/// @param passes by rank, of sections that run once  @param times by stage
/// @param exchange_s of one message
/// @throws Error if ranks wait for each other
Timeline follow(const std::vector<layers::RankPasses>& passes,
                const std::vector<layers::PassTimes>& times, double exchange_s);

}  // namespace stowage::forecast
