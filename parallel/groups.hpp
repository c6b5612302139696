#pragma once

#include <vector>

#include "parallel/grid.hpp"
#include "parallel/mpi.hpp"

namespace stowage::parallel {

/// This rank's place in the grid, with a communicator for each of its groups.
class ProcessGrid {
 public:
  /// Collective over `world`, whose size is shape.ranks().
  ProcessGrid(const Communicator& world, const GridShape& shape);

  const GridShape& shape() const { return shape_; }
  const PerAxis& coordinates() const { return coordinates_; }
  /// In the order of world ranks.
  const Communicator& group(Group group) const { return groups_[static_cast<std::size_t>(group)]; }

 private:
  GridShape shape_;
  PerAxis coordinates_;
  std::vector<Communicator> groups_;  ///< by Group
};

}  // namespace stowage::parallel
