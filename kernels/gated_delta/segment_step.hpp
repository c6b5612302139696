#pragma once

#include <cstdint>

#include "execution/parallel_for.hpp"

namespace stowage::kernels::gated_delta {

/// Element i of the state behind a segment, from that before it and what the segment left
/// (kAdjoint: of the gradient before it, from that behind it), written once for both backends.
template <class A, bool kAdjoint>
struct SegmentStep {
  const A* left = nullptr;    // (Hv, P, N), then (Hv, N, N) matrices; null: nothing enters
  const A* before = nullptr;  // null: zero
  const std::int32_t* seq_idx;
  A* after;
  std::int64_t border = 0;  // the first token behind the edge that the state passes
  std::int64_t value_dim, key_dim;
  std::int64_t elements;  // of the states of all heads

  STOWAGE_PORTABLE void operator()(std::int64_t i) const {
    if (left == nullptr || seq_idx[border - 1] != seq_idx[border]) {
      after[i] = A{0};
      return;
    }
    A sum = left[i];
    if (before != nullptr) {
      const std::int64_t row = i / key_dim, n = i % key_dim;
      const A* matrix = left + elements + row / value_dim * key_dim * key_dim;
      for (std::int64_t m = 0; m < key_dim; ++m)
        sum += before[row * key_dim + m] *
               (kAdjoint ? matrix[n * key_dim + m] : matrix[m * key_dim + n]);
    }
    after[i] = sum;
  }
};

}  // namespace stowage::kernels::gated_delta
