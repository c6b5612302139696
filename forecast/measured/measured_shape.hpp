#pragma once

#include <string>

#include "parallel/groups/grid.hpp"

namespace stowage::forecast {

/// The process grid of the run that left a result set.
/// @throws Error (exit 2) if the file is none
parallel::GridShape measured_shape(const std::string& path);

}  // namespace stowage::forecast
