#pragma once

#include <cstdint>

#include "execution/parallel_for.hpp"

namespace stowage::kernels::detail {

/// later[t] of LaterTokens, written once for both backends.
struct LaterToken {
  const std::int32_t* ids;
  const std::int32_t* seq_idx;
  std::int64_t tokens, distance;
  std::int32_t* later;

  STOWAGE_PORTABLE void operator()(std::int64_t t) const {
    const bool within = distance < tokens - t && seq_idx[t + distance] == seq_idx[t];
    later[t] = within ? ids[t + distance] : -1;
  }
};

}  // namespace stowage::kernels::detail
