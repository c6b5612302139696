#pragma once

#include <string>

#include "parallel/grid.hpp"

namespace stowage::drivers {

/// The process grid of the run that left a result set.
/// @throws Error (exit 2) if the file is none
parallel::GridShape measured_shape(const std::string& path);

/// Ranks of a group, as lines of machine.links count them: neighbours in a pipeline are two.
int link_ranks(const parallel::GridShape& shape, parallel::Group group);

}  // namespace stowage::drivers
