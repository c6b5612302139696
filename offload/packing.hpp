#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace stowage::offload {

/// A block of `bytes` that is needed during [begin, end]; one with end < begin from `begin` on and
/// up to `end`.
struct Block {
  int begin = 0;
  int end = 0;
  std::size_t bytes = 0;

  bool wraps() const { return end < begin; }
  bool meets(const Block& other) const {
    if (wraps() && other.wraps()) return true;
    if (wraps() || other.wraps()) return begin <= other.end || other.begin <= end;
    return begin <= other.end && other.begin <= end;
  }
};

struct Packing {
  std::vector<std::size_t> offsets;  ///< by block
  std::size_t bytes = 0;             ///< highest end
  std::size_t bound = 0;             ///< largest sum of live blocks: no packing is smaller
};

inline constexpr std::size_t kUnbounded = SIZE_MAX;

/// Gives each block an offset so that blocks that live together do not overlap, with the least
/// total bytes that greedy placement finds: blocks are placed one after the other at the lowest
/// offset that fits, in several orders (as they fill the lowest gap, by bytes, by length of life,
/// by area, then each of these with the blocks at the top moved first), until the bound is met, or
/// `enough` bytes are not passed, or the tries are used up. One order serves if the bound passes
/// `enough`; where that is kUnbounded, no two blocks share any.
///
/// Dynamic storage allocation is NP-hard; deterministic. Sizes must be multiples of the alignment.
/// Source: Sekiyama et al., "Profile-guided memory optimization for deep neural networks",
/// arXiv:1804.10001, section 3 (best fit); Pisarchyk and Lee, arXiv:2001.03288 (greedy by size).
Packing pack(const std::vector<Block>& blocks, std::size_t enough = 0);

}  // namespace stowage::offload
