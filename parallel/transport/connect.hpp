#pragma once

#include <functional>
#include <memory>
#include <string>

#include "parallel/groups/ranks.hpp"
#include "parallel/job/mpi.hpp"

namespace stowage::parallel {

/// Makes the way between the ranks of one group. Collective over them.
using MakeTransport =
    std::function<std::shared_ptr<Transport>(const Communicator& ranks, const std::string& group)>;

/// This rank's place in the grid, with a transport for each of its groups of several ranks.
/// Collective over `world`, whose size is shape.ranks().
Ranks connect(const Communicator& world, const GridShape& shape, const MakeTransport& make);

}  // namespace stowage::parallel
