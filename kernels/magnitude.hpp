#pragma once

#include <cmath>
#include <cstdint>

#include "execution/dtype.hpp"

namespace stowage::kernels {

/// Takes another value into the largest magnitude of some; a NaN counts as larger than all.
template <class A>
void add_largest(A& largest, A value) {
  const A magnitude = std::abs(value);
  if (!(magnitude <= largest) && !std::isnan(largest)) largest = magnitude;
}

/// The largest magnitude of `count` values.
template <class S>
execution::Accumulation<S> largest_magnitude(const S* values, std::int64_t count) {
  execution::Accumulation<S> largest = 0;
  for (std::int64_t i = 0; i < count; ++i)
    add_largest(largest, static_cast<execution::Accumulation<S>>(values[i]));
  return largest;
}

}  // namespace stowage::kernels
