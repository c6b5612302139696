#pragma once

#include <span>

#include "execution/persistent.hpp"
#include "layers/recording/parameters.hpp"
#include "parallel/groups/ranks.hpp"

namespace stowage::layers {

/// Sums the gradients of repeated rows (Repeat) over the ranks that have them, in the order of the
/// group, so that copies stay the same bits. All ranks of the group have such rows, or none.
/// @param parameters whose gradients are complete
void sum_repeats(execution::Program& program, const execution::PersistentLayout& layout,
                 const parallel::RankGroup& tensor, std::span<const Parameter> parameters);

}  // namespace stowage::layers
