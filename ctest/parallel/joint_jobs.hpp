#pragma once

#include <random>
#include <string>
#include <vector>

#include "parallel/groups/grid.hpp"
#include "parallel/proof/communication_trace.hpp"

namespace stowage::parallel {

using Rng = std::mt19937_64;

/// A number of [least, most].
int draw(Rng& rng, int least, int most);

/// What random_job draws from.
struct JobShape {
  GridShape grid;
  int programs = 2;
  int events = 20;     ///< communications of a program, over all groups of a kind or over one
  int edges = 8;       ///< at most, of a rank's program
  int moves = 10;      ///< pairs of calls next to each other that a rank issues in another order
  bool equal = false;  ///< every event is of all groups of its kind: ranks have equal programs
};

/// Traces of a job that runs to its end: all ranks take their calls from one global list, and what
/// they order otherwise has no edge. Ops are named op<number in the list>, and no two of a program
/// are equal; exchanges have one name on all ranks.
std::vector<RankTrace> random_job(Rng& rng, const JobShape& shape);

}  // namespace stowage::parallel
