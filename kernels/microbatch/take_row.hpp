#pragma once

#include <cstdint>

#include "execution/op.hpp"

namespace stowage::kernels {

/// The inputs of all microbatches of a step arrive at once, stacked; which one is at work is a
/// number on the device, so that the same ops serve every period of a repeating section.

/// row (w) = stack (M, w)[index[0]]; all int32.
void take_row(execution::Queue& queue, const execution::View& stack, const execution::View& index,
              const execution::View& row);

/// ++index[0], int32.
void advance_index(execution::Queue& queue, const execution::View& index);

execution::Cost take_row_cost(std::int64_t width);

}  // namespace stowage::kernels
