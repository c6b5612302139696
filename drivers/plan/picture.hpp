#pragma once

#include <string>

#include "forecast/plan/checkpoint_memory.hpp"
#include "forecast/plan/trainer_plan.hpp"
#include "offload/prediction.hpp"

namespace stowage::drivers {

/// Transient memory over one step as a picture of text: time to the right, bytes upwards, one
/// letter for each kind of tensor, and below it when copies are under way. Sections that repeat are
/// drawn once.
std::string memory_picture(const execution::Program& program, const execution::Plan& plan,
                           const offload::Prediction& prediction, int columns, int rows);

/// Where memory that outlives a step is: a bar of the device and, if it has any, one of the host,
/// at one scale, with a letter for each class. At their ends is what is transient or offloaded.
/// @param memory of the device in bytes; 0: not known
std::string homes_picture(const forecast::TrainerPlan& run,
                          const forecast::CheckpointMemory& saving, std::size_t memory,
                          int columns);

}  // namespace stowage::drivers
