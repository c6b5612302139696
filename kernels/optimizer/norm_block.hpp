#pragma once

#include <cstdint>

#include "execution/persistent.hpp"

/// The order in which the global norm adds, on both backends. It depends on a tensor's elements and
/// on the number of slots alone, not on how tensors are cut into pieces or on what runs first.
namespace stowage::kernels {

/// Elements of one partial sum: a bucket's shard holds whole blocks, whatever their number.
inline constexpr std::int64_t kNormBlock = execution::kBucketGrain;

/// Terms of a partial sum that are kept apart: term t adds elements t, t + 128, … of its block.
/// Four neighbouring terms are added as (0 + 1) + (2 + 3), the 32 results as by fold_halves().
inline constexpr int kNormTerms = 128;
inline constexpr int kNormLanes = kNormTerms / 4;

/// Terms of the sum over slots: term t adds slots t, t + 8192, …. They are added as by
/// fold_halves(): each 32 neighbours, then each 32 of those sums, then the last 8.
inline constexpr int kSlotTerms = 8192;
inline constexpr int kSlotFold = 32;

/// Of the slots of a part of the model, likewise: term t adds its slots t, t + 1024, ….
inline constexpr int kPartTerms = 1024;

constexpr std::int64_t norm_blocks(std::int64_t elements) {
  return (elements + kNormBlock - 1) / kNormBlock;
}

/// The sum of 2^k values: the second half is added to the first until one is left, as a warp's
/// butterfly does. Overwrites them.
inline double fold_halves(double* values, int count) {
  for (int width = count / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) values[i] += values[i + width];
  return values[0];
}

}  // namespace stowage::kernels
