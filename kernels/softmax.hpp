#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/exponential.hpp"
#include "kernels/reduce.hpp"

namespace stowage::kernels {

/// The largest value, -infinity of none. By lanes, as ordered_sum: compilers keep the order of a
/// plain loop. A NaN is passed over; the sum of exponentials has it then.
template <class T>
T largest(const T* values, std::int64_t count) {
  constexpr std::int64_t kLanes = 16;
  T lanes[kLanes];
  std::fill_n(lanes, kLanes, -std::numeric_limits<T>::infinity());
  const std::int64_t whole = count - count % kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes)
    for (std::int64_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] = lanes[lane] < values[i + lane] ? values[i + lane] : lanes[lane];
  for (std::int64_t i = whole; i < count; ++i) lanes[0] = std::max(lanes[0], values[i]);
  return *std::max_element(lanes, lanes + kLanes);
}

/// Makes each value exp(value - maximum) and returns their sum.
template <class T>
T exponentials(T* values, std::int64_t count, T maximum) {
  for (std::int64_t i = 0; i < count; ++i) values[i] = exponential(values[i] - maximum);
  return ordered_sum<T>(count, [=](std::int64_t i) { return values[i]; });
}

}  // namespace stowage::kernels
