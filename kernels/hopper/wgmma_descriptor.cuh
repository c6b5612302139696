#pragma once

#include <cstdint>

#include "kernels/hopper/shared_address.cuh"
#include "kernels/hopper/swizzle.hpp"

namespace stowage::kernels::hopper {

/// The 64-bit matrix descriptor of wgmma (PTX ISA, "Matrix-descriptor format"): an operand in
/// shared memory. `leading` and `stride` are byte distances; their meaning depends on the
/// major-ness:
///  - K-major (rows of the operand contiguous along K): `stride` separates groups of eight rows,
///    `leading` is unused with a swizzle;
///  - MN-major (contiguous along M or N, "transposed"): `leading` separates panels of one row width
///    along MN, `stride` separates groups of eight along K.
__device__ __forceinline__ std::uint64_t wgmma_descriptor(std::uint32_t address, Swizzle swizzle,
                                                          std::uint32_t leading,
                                                          std::uint32_t stride) {
  const std::uint32_t low = ((address & 0x3FFFFU) >> 4) | (((leading & 0x3FFFFU) >> 4) << 16);
  const std::uint32_t high =
      ((stride & 0x3FFFFU) >> 4) | (static_cast<std::uint32_t>(swizzle) << 30);
  return (static_cast<std::uint64_t>(high) << 32) | low;
}

/// Descriptor of a K-major operand at `tile`: one panel of rows as wide as the swizzle, rows
/// packed. The next 16 bf16 along K inside the panel: `advance(d, 32)`.
template <Swizzle kSwizzle>
__device__ __forceinline__ std::uint64_t k_major(const void* tile) {
  return wgmma_descriptor(shared_address(tile), kSwizzle, 16, 8 * row_bytes(kSwizzle));
}

/// Descriptor of an MN-major operand at `tile`: panels of one row width along MN, `panel_bytes`
/// apart, each with one row per index of K. The next 16 along K: `advance(d, 16 *
/// row_bytes(swizzle))`.
template <Swizzle kSwizzle>
__device__ __forceinline__ std::uint64_t mn_major(const void* tile, std::uint32_t panel_bytes) {
  return wgmma_descriptor(shared_address(tile), kSwizzle, panel_bytes, 8 * row_bytes(kSwizzle));
}

/// The descriptor of the same operand `bytes` further on (a multiple of 16).
__device__ __forceinline__ std::uint64_t advance(std::uint64_t descriptor, std::uint32_t bytes) {
  return descriptor + (bytes >> 4);
}

}  // namespace stowage::kernels::hopper
