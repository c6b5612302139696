#pragma once

#include <cstdint>

#include "execution/parallel_for.hpp"

namespace stowage::kernels::detail {

/// Element i of what enters a segment, from what the segments before it leave (kReverse: from the
/// adjoints of those behind it), written once for both backends.
template <class A, bool kReverse>
struct EnterSegment {
  const A* all;  // (segments): (size) states, then (heads) decays
  const std::int32_t* seq_idx;
  A* state;
  std::int64_t segments, segment;
  std::int64_t tokens;         // of a segment
  std::int64_t size, of_head;  // elements of the states of all heads, and of one
  std::int64_t heads;

  /// Whether the state passes between segment j - 1 and segment j.
  STOWAGE_PORTABLE bool passes(std::int64_t j) const {
    return seq_idx[j * tokens - 1] == seq_idx[j * tokens];
  }
  STOWAGE_PORTABLE A step(std::int64_t j, std::int64_t i, A before) const {
    const A* left = all + j * (size + heads);
    return left[size + i / of_head] * before + left[i];
  }
  STOWAGE_PORTABLE void operator()(std::int64_t i) const {
    A sum{0};
    if constexpr (kReverse) {
      for (std::int64_t j = segments - 1; j > segment; --j)
        sum = passes(j) ? step(j, i, sum) : A{0};
    } else {
      for (std::int64_t j = 0; j < segment; ++j) sum = passes(j + 1) ? step(j, i, sum) : A{0};
    }
    state[i] = sum;
  }
};

}  // namespace stowage::kernels::detail
