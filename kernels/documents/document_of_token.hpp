#pragma once

#include <cstdint>

#include "execution/parallel_for.hpp"

namespace stowage::kernels::detail {

/// seq_idx[t] by bisection of the document ends, written once for both backends.
struct DocumentOfToken {
  const std::int32_t* ends;  // (capacity), cu_seqlens without its leading 0
  std::int32_t capacity;
  std::int32_t* seq_idx;

  STOWAGE_PORTABLE void operator()(std::int64_t t) const {
    std::int32_t first = 0, last = capacity;  // ends before first are <= t, from last on > t
    while (first < last) {
      const std::int32_t middle = first + (last - first) / 2;
      if (ends[middle] <= t)
        first = middle + 1;
      else
        last = middle;
    }
    seq_idx[t] = first;
  }
};

}  // namespace stowage::kernels::detail
