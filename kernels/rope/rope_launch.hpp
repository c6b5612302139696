#pragma once

#include <cstdint>

#include "kernels/rope/rope_frequencies.hpp"

namespace stowage::kernels::rope {

/// Operands of a rotation; direction 1 is the forward, -1 the backward.
template <class S>
struct Rotation {
  std::int64_t tokens, heads, kv_heads, head_dim, rotary_dim;
  const S* in;
  const std::int32_t* cu_seqlens;
  const std::int32_t* seq_idx;
  const std::int32_t* positions;  ///< of each token, or null: by its document
  S* out;
  std::int64_t first_token;  ///< of those that cu_seqlens counts
  RopeFrequencies frequencies;
  double direction;
};

/// Launches on a cudaStream_t and returns the cudaError_t; S is float or Bf16.
template <class S>
int launch(const Rotation<S>& args, void* stream);

}  // namespace stowage::kernels::rope
