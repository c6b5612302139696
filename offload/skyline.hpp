#pragma once

#include <vector>

#include "offload/packing.hpp"

namespace stowage::offload {

/// Which of the blocks that fit into a gap goes there first.
enum class Prefer : unsigned char { longest, largest, area };

/// An order in which to place blocks, found by filling the lowest gap over time, again and again:
/// the best-fit heuristic for dynamic storage allocation (Burke, Kendall and Whitwell 2004; with
/// fixed times as in Sekiyama et al., "Profile-guided memory optimization for deep neural
/// networks", 2018).
///
/// @return indices of blocks, from the lowest offset up
std::vector<int> skyline_order(const std::vector<Block>& blocks, Prefer prefer);

}  // namespace stowage::offload
