#pragma once

#include <cstdint>

#include "execution/parallel_for.hpp"

namespace stowage::kernels {

/// Which tokens the rows of a rank are, where ranks share them out: neighbours.
struct RowTokens {
  std::int64_t first = 0;

  STOWAGE_PORTABLE std::int64_t token(std::int64_t row) const { return first + row; }
  /// How many of `rows` are tokens before `end`.
  STOWAGE_PORTABLE std::int64_t before(std::int64_t end, std::int64_t rows) const {
    const std::int64_t count = end - first;
    return count < 0 ? 0 : count < rows ? count : rows;
  }
};

}  // namespace stowage::kernels
