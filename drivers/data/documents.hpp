#pragma once

#include <cstdint>

#include "inputs/deck/command_line.hpp"

namespace stowage::drivers {

/// Steps of a training, counted from 1 as it does.
struct StepRange {
  std::int64_t first = 1, count = 1;
};

/// Prints the documents of the microbatches of some steps as JSON lines {"step", "microbatch",
/// "lengths"}: lengths in tokens, in their order. Microbatches count over the whole batch: of
/// several ranks each has some that follow one another. Throws usage errors as training does, and
/// for steps that are not in [1, 2^31).
void print_documents(const inputs::CommandLine& command, StepRange steps);

}  // namespace stowage::drivers
