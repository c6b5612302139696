#pragma once

#include <cstdint>

#include "execution/dtype.hpp"
#include "execution/parallel_for.hpp"

/// The factors of a digest of tensors that many may make together: two sums modulo 2^64 over all
/// elements, each times an odd number of its place (kernels/digest/digest.hpp has the formula). On
/// a GPU of the state of a run, on the host of the bytes of a file.
namespace stowage::execution {

inline constexpr int kDigestLanes = 8;

/// The finaliser of SplitMix64: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number
/// generators", OOPSLA 2014, figure 16. A bijection that spreads each bit over all.
STOWAGE_PORTABLE constexpr std::uint64_t mix64(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

/// C_half(lane).
STOWAGE_PORTABLE constexpr std::uint64_t lane_factor(int half, int lane) {
  const int number = half * kDigestLanes + lane + 1;
  return mix64(static_cast<std::uint64_t>(number)) | 1;
}

/// K_half of a block: the golden ratio's bits step through SplitMix64's sequence from the key on.
STOWAGE_PORTABLE constexpr std::uint64_t block_factor(std::uint64_t key, std::int64_t block) {
  return mix64(key + static_cast<std::uint64_t>(block) * 0x9e3779b97f4a7c15ULL) | 1;
}

/// The keys of a tensor: of its name, its dtype and the half.
constexpr std::uint64_t digest_key(std::uint64_t stream, Dtype dtype, int half) {
  return mix64(stream ^
               mix64(2 * static_cast<std::uint64_t>(dtype) + static_cast<std::uint64_t>(half) + 1));
}

}  // namespace stowage::execution
