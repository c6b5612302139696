#pragma once

#include <algorithm>
#include <cstdint>

#include "execution/host_loops.hpp"

namespace stowage::kernels {

/// Sums over rows on the host: each block of rows has one row of partial sums, and those are added
/// in order. Blocks are fixed, so the result does not depend on the number of threads.

/// Rows of one partial sum.
inline constexpr std::int64_t kRowsPerPartial = 64;

constexpr std::int64_t partial_count(std::int64_t rows) {
  return (rows + kRowsPerPartial - 1) / kRowsPerPartial;
}

/// Runs `body(begin, end, partial)` over blocks of rows; partial (width) is zeroed before. Then sum
/// (width) = the partials (partial_count(rows), width) in order, added to sum when `accumulate`.
template <class T, class Body>
void sum_over_rows(std::int64_t rows, std::int64_t width, T* partials, T* sum, bool accumulate,
                   const Body& body) {
  execution::host_for(rows, kRowsPerPartial, [&](std::int64_t begin, std::int64_t end) {
    T* partial = partials + begin / kRowsPerPartial * width;
    std::fill_n(partial, width, T{0});
    body(begin, end, partial);
  });
  constexpr std::int64_t kColumns = 256;
  execution::host_for(width, kColumns, [&](std::int64_t begin, std::int64_t end) {
    if (!accumulate) std::fill(sum + begin, sum + end, T{0});
    for (std::int64_t block = 0; block < partial_count(rows); ++block)
      for (std::int64_t j = begin; j < end; ++j) sum[j] += partials[block * width + j];
  });
}

}  // namespace stowage::kernels
