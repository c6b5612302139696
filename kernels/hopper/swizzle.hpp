#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define STOWAGE_HOST_DEVICE __host__ __device__
#else
#define STOWAGE_HOST_DEVICE
#endif

namespace stowage::kernels::hopper {

/// Shared-memory swizzles of the bulk tensor copy engine and of the wgmma descriptors.
///
/// A tile is stored as rows of `row_bytes(swizzle)` bytes; within groups of eight rows, the 16-byte
/// chunk c of row r lies at chunk c ^ (r mod 8) (128 B), c ^ (r / 2 mod 4) (64 B), c ^ (r / 4 mod
/// 2) (32 B). The pattern is a function of the shared address, so tiles begin at a multiple of
/// 1024, 512 or 256 bytes. The numbers are those of the wgmma matrix descriptor (PTX ISA,
/// "Asynchronous Warpgroup Level Matrix Shared Memory Layout").
enum class Swizzle : std::uint32_t { none = 0, b128 = 1, b64 = 2, b32 = 3 };

/// Bytes of one row of a swizzled tile; a wider tile is stored as panels of this width.
STOWAGE_HOST_DEVICE constexpr std::uint32_t row_bytes(Swizzle swizzle) {
  switch (swizzle) {
    case Swizzle::b128:
      return 128;
    case Swizzle::b64:
      return 64;
    case Swizzle::b32:
      return 32;
    case Swizzle::none:
      break;
  }
  return 16;
}

/// Where the byte at `offset` of an unswizzled tile lies; both count from the tile's aligned start.
template <Swizzle kSwizzle>
STOWAGE_HOST_DEVICE constexpr std::uint32_t swizzled(std::uint32_t offset) {
  if constexpr (kSwizzle == Swizzle::b128) return offset ^ ((offset >> 3) & 0x70U);
  if constexpr (kSwizzle == Swizzle::b64) return offset ^ ((offset >> 3) & 0x30U);
  if constexpr (kSwizzle == Swizzle::b32) return offset ^ ((offset >> 3) & 0x10U);
  return offset;
}

}  // namespace stowage::kernels::hopper

#undef STOWAGE_HOST_DEVICE
