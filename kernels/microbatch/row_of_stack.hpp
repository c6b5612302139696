#pragma once

#include <cstdint>

#include "execution/parallel_for.hpp"

/// The microbatch operators' work on element i, written once for both backends.
namespace stowage::kernels::detail {

/// row[i] = stack[index][i].
struct RowOfStack {
  const std::int32_t* stack;
  const std::int32_t* index;
  std::int32_t* row;
  std::int64_t width;

  STOWAGE_PORTABLE void operator()(std::int64_t i) const { row[i] = stack[*index * width + i]; }
};

struct AdvanceIndex {
  std::int32_t* index;

  STOWAGE_PORTABLE void operator()(std::int64_t) const { ++*index; }
};

}  // namespace stowage::kernels::detail
