#pragma once

#include <cstdint>

#include "execution/parallel_for.hpp"

/// What one element of the operators of shards.hpp does, for both backends.
namespace stowage::kernels::detail {

struct Localise {
  const std::int32_t* ids;
  std::int32_t* local;
  std::int64_t first, count;

  STOWAGE_PORTABLE void operator()(std::int64_t i) const {
    const std::int64_t at = ids[i] - first;
    local[i] = at >= 0 && at < count ? static_cast<std::int32_t>(at) : -1;
  }
};

template <class A>
struct PairValues {
  const A* rows;
  const std::int32_t* row_of_pair;
  A* pairs;

  STOWAGE_PORTABLE void operator()(std::int64_t i) const {
    pairs[i] = row_of_pair[i] < 0 ? A{0} : rows[row_of_pair[i]];
  }
};

struct PairRows {
  const std::int32_t* indices;
  std::int32_t* rows;

  STOWAGE_PORTABLE void operator()(std::int64_t i) const {
    rows[i] = indices[i] < 0 ? -1 : static_cast<std::int32_t>(i);
  }
};

}  // namespace stowage::kernels::detail
