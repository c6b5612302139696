#pragma once

#include <vector>

#include "offload/policy.hpp"
#include "offload/reruns.hpp"
#include "offload/saved_tensors.hpp"

namespace stowage::offload {

/// Saved tensors that are decided about as one: one tensor, or those of one layer that an alias
/// names.
struct Item {
  std::vector<int> saved;  ///< indices, in forward order
  int section = 0;
  std::size_t bytes = 0;  ///< that would move
  int name = -1;          ///< index of the name that covers it, or -1
};

/// The items of the names of a list, in forward order. What a name's item holds is not in another.
std::vector<Item> find_items(const execution::Program& program,
                             const std::vector<SavedTensor>& saved,
                             const std::vector<ModuleName>& names, std::size_t min_bytes);

/// What the manual policy says of each tensor, before anything is known about time: recompute where
/// listed and possible, else offload where listed, as far as sizes, fraction and keep_bytes allow.
///
/// @throws Error (exit 2) if a tensor is listed to be computed again, cannot be, and is not listed
///         to be offloaded either
Choice choose_manual(const execution::Program& program, const std::vector<SavedTensor>& saved,
                     const Reruns& reruns, const Policy& policy);

}  // namespace stowage::offload
