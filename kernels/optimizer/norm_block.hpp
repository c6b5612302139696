#pragma once

#include <cstdint>

namespace stowage::kernels {

/// Elements of one partial sum of the global norm, counted from the start of a tensor. Shards of a
/// bucket are cut at multiples of it (execution::kBucketGrain).
inline constexpr std::int64_t kNormBlock = 2048;

constexpr std::int64_t norm_blocks(std::int64_t elements) {
  return (elements + kNormBlock - 1) / kNormBlock;
}

/// Partial sums that are added up together before the rest.
inline constexpr std::int64_t kNormChunk = 4096;

constexpr std::int64_t norm_chunks(std::int64_t blocks) {
  return (blocks + kNormChunk - 1) / kNormChunk;
}

}  // namespace stowage::kernels
