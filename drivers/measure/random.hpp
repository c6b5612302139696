#pragma once

#include <cstdint>

#include "execution/dtype.hpp"
#include "execution/parallel_for.hpp"
#include "execution/philox.hpp"

namespace stowage::drivers {

/// out[i] = mean + deviation * (nearly normal), bf16 or fp32: never zeros, on which a GPU runs faster.
struct RandomBf16 {
  std::uint64_t seed, stream;
  float mean, deviation;
  execution::Bf16* out;

  STOWAGE_PORTABLE void operator()(std::int64_t i) const;
};
struct RandomFp32 {
  std::uint64_t seed, stream;
  float mean, deviation;
  float* out;

  STOWAGE_PORTABLE void operator()(std::int64_t i) const;
};

/// Sixteen bytes, moved by one instruction.
struct alignas(16) Block16 {
  std::uint32_t word[4];
};

/// to[i] = from[i]: the plain memory-bound kernel.
struct CopyBlocks {
  const Block16* from;
  Block16* to;

  STOWAGE_PORTABLE void operator()(std::int64_t i) const { to[i] = from[i]; }
};

}  // namespace stowage::drivers
