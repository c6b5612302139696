#pragma once

#include <cstdint>
#include <string>

#include "inputs/deck/command_line.hpp"

namespace stowage::drivers {

/// Steps of a training, counted from 1 as it does.
struct StepRange {
  std::int64_t first = 1, count = 1;
};

/// The documents of the microbatches of some steps, of one rank that has the whole batch, as JSON
/// lines {"step", "microbatch", "lengths"}: lengths in tokens, in their order. Throws usage errors
/// as training does, and for steps below 1.
std::string documents_text(const inputs::CommandLine& command, StepRange steps);

}  // namespace stowage::drivers
