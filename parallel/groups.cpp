#include "parallel/groups.hpp"

#include "execution/error.hpp"

namespace stowage::parallel {
ProcessGrid::ProcessGrid(const Communicator& world, const GridShape& shape)
    : shape_(shape), coordinates_(parallel::coordinates(shape, world.rank())) {
  STOWAGE_ASSERT(world.size() == shape.ranks(), "a grid of {} ranks ({}) on {}", shape.ranks(),
                 shape.describe(), world.size());
  groups_.reserve(kGroups);
  for (std::size_t g = 0; g < kGroups; ++g) {
    // The lowest member names the group: the same for its members, another for all others.
    const int color = members(shape, world.rank(), axes(static_cast<Group>(g))).front();
    groups_.push_back(world.split(color, world.rank()));
  }
}

}  // namespace stowage::parallel
