#pragma once

#include <string>

#include "parallel/grid.hpp"

namespace stowage::drivers {

/// The process grid of the run that left a result set.
/// @throws Error (exit 2) if the file is none
parallel::GridShape measured_shape(const std::string& path);

}  // namespace stowage::drivers
