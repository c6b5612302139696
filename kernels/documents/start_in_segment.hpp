#pragma once

#include <cstdint>

#include "execution/parallel_for.hpp"

namespace stowage::kernels::detail {

/// Entry i of the starts of a segment's documents, written once for both backends.
struct StartInSegment {
  const std::int32_t* cu_seqlens;
  std::int32_t first, tokens;
  std::int32_t* part;

  STOWAGE_PORTABLE void operator()(std::int64_t i) const {
    const std::int32_t start = cu_seqlens[i] < first ? 0 : cu_seqlens[i] - first;
    part[i] = start < tokens ? start : tokens;
  }
};

}  // namespace stowage::kernels::detail
