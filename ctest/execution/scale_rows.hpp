#pragma once

#include <cstdint>

#include "execution/parallel_for.hpp"

namespace stowage::execution {

/// out[i] = in[i] * scale[i / columns]: a portable functor as a layer would write it.
struct ScaleRows {
  const float* in;
  const float* scale;
  float* out;
  std::int64_t columns;

  STOWAGE_PORTABLE void operator()(std::int64_t i) const { out[i] = in[i] * scale[i / columns]; }
};

}  // namespace stowage::execution
