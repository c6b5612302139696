#pragma once

#include <cstdint>

namespace stowage::kernels {

/// Elements of one partial sum of the global norm.
inline constexpr std::int64_t kNormBlock = 16384;

constexpr std::int64_t norm_blocks(std::int64_t elements) {
  return (elements + kNormBlock - 1) / kNormBlock;
}

}  // namespace stowage::kernels
