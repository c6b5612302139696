#include "parallel/transport/connect.hpp"

#include "execution/error.hpp"

namespace stowage::parallel {

Ranks connect(const Communicator& world, const GridShape& shape, const MakeTransport& make) {
  STOWAGE_ASSERT(world.size() == shape.ranks(), "a grid of {} ranks ({}) on {}", shape.ranks(),
                 shape.describe(), world.size());
  return make_ranks(shape, world.rank(),
                    [&](const std::string& name, const std::vector<int>& members) {
                      // The lowest member names the group: another for all that are apart.
                      const Communicator ranks = world.split(members.front(), world.rank());
                      return std::make_shared<const Collectives>(make(ranks, name));
                    });
}

}  // namespace stowage::parallel
