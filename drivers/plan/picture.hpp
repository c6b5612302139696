#pragma once

#include <string>

#include "offload/prediction.hpp"

namespace stowage::drivers {

/// Transient memory over one step as a picture of text: time to the right, bytes upwards, one
/// letter for each kind of tensor, and below it when copies are under way. Sections that repeat are
/// drawn once.
std::string memory_picture(const execution::Program& program, const execution::Plan& plan,
                           const offload::Prediction& prediction, int columns, int rows);

}  // namespace stowage::drivers
