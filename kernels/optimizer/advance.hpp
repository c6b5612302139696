#pragma once

#include <cstdint>

#include "execution/parallel_for.hpp"

namespace stowage::kernels::detail {

/// ++step if step_ok, written once for both backends.
struct Advance {
  std::int64_t* step;
  const std::int32_t* step_ok;

  STOWAGE_PORTABLE void operator()(std::int64_t) const {
    if (*step_ok != 0) ++*step;
  }
};

}  // namespace stowage::kernels::detail
