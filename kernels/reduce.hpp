#pragma once

#include <array>
#include <cstdint>

namespace stowage::kernels {

/// The sum of term(0) + … + term(count - 1), in an order that depends on `count` alone: sixteen
/// strided partial sums, which compilers turn into vector additions, then a pairwise tree.
///
/// A term must not load under a condition: gcc 12.2 with AVX then sums wrong elements. Load first,
/// then select.
template <class T, class Term>
inline T ordered_sum(std::int64_t count, Term&& term) {
  constexpr std::int64_t kLanes = 16;
  std::array<T, kLanes> lanes{};
  const std::int64_t whole = count - count % kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes)
    for (std::int64_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] += static_cast<T>(term(i + lane));
  for (std::int64_t i = whole; i < count; ++i) lanes[i - whole] += static_cast<T>(term(i));
  for (std::int64_t width = kLanes / 2; width > 0; width /= 2)
    for (std::int64_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  return lanes[0];
}

}  // namespace stowage::kernels
