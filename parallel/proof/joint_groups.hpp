#pragma once

#include <span>
#include <string>
#include <vector>

#include "parallel/proof/communication_trace.hpp"

namespace stowage::parallel {

/// The groups of a job, each once, as the traces of all ranks speak of them.
class JointGroups {
 public:
  /// Finds the groups, and where ranks differ about who belongs to one.
  /// @param traces of all ranks, in their order
  /// @param faults gets a sentence for each difference; after one, the groups are of no use
  JointGroups(std::span<const RankTrace> traces, std::vector<std::string>& faults);

  int size() const { return static_cast<int>(groups_.size()); }
  const TracedGroup& group(int id) const { return groups_[id]; }
  /// The group that a rank's op names by its index in the rank's own list.
  int id(int rank, int index) const { return ids_[rank][index]; }
  /// Where a rank stands in a group.
  std::size_t position(int id, int rank) const;

 private:
  std::vector<TracedGroup> groups_;
  std::vector<std::vector<int>> ids_;  ///< by rank and index
};

/// "rank 3", "ranks 0, 1, 2", "ranks 0, 1, 2, 3 and 12 more".
std::string describe_ranks(std::span<const int> ranks);

}  // namespace stowage::parallel
