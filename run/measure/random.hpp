#pragma once

#include <cstdint>

#include "execution/dtype.hpp"
#include "execution/parallel_for.hpp"
#include "execution/philox.hpp"

namespace stowage::run {

/// out[i] = mean + scale * (nearly normal): never zeros, on which a GPU runs faster. Element type T
/// is float or Bf16; `scale` is from execution::normal_scale().
template <class T>
struct RandomNormal {
  std::uint64_t seed, stream;
  float mean, scale;
  T* out;

  STOWAGE_PORTABLE void operator()(std::int64_t i) const {
    out[i] = T(mean + execution::normal(seed, stream, static_cast<std::uint64_t>(i), scale));
  }
};

/// Sixteen bytes, moved by one instruction.
struct alignas(16) Block16 {
  std::uint32_t word[4];
};

/// to[i & mask] = from[i & mask]: the plain memory-bound kernel. A mask of a power of two - 1 lets
/// it pass over the same memory again and again.
struct CopyBlocks {
  const Block16* from;
  Block16* to;
  std::int64_t mask = ~std::int64_t{0};

  STOWAGE_PORTABLE void operator()(std::int64_t i) const { to[i & mask] = from[i & mask]; }
};

}  // namespace stowage::run
