#pragma once

#include <cstdint>

#include "execution/parallel_for.hpp"

namespace stowage::kernels {

/// Which tokens the rows of a rank are, where ranks share them out: `piece` neighbours, the next
/// ones `stride` tokens further on, and so on.
struct RowTokens {
  std::int64_t first = 0;
  std::int64_t piece = 0;  ///< 0: all rows are neighbours
  std::int64_t stride = 0;

  STOWAGE_PORTABLE std::int64_t token(std::int64_t row) const {
    return piece == 0 ? first + row : first + row / piece * stride + row % piece;
  }
  /// How many of `rows` are tokens before `end`: the first ones, since tokens only grow.
  STOWAGE_PORTABLE std::int64_t before(std::int64_t end, std::int64_t rows) const {
    std::int64_t low = 0, high = rows;
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      if (token(middle) < end)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }
};

}  // namespace stowage::kernels
