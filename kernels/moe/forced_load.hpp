#pragma once

#include <bit>
#include <cstdint>

#include "execution/parallel_for.hpp"

namespace stowage::kernels {

/// A load that the choice of experts is forced to, for benchmarks.
enum class ForcedLoad {
  none,      ///< chosen by score
  balanced,  ///< all experts are as likely
  zipf,      ///< the expert in place p = 1 .. E is p times less likely than the first
};

/// Experts drawn by weight without replacement, as exponential races (P. Efraimidis, P. Spirakis,
/// "Weighted random sampling with a reservoir", 2006): each has the key -log(u) / weight of a
/// uniform u of its own, and those of the smallest keys are taken. In integers alone, so that host
/// and device agree to the bit.
namespace detail {

/// The finalizer of MurmurHash3 (A. Appleby): each bit depends on all.
STOWAGE_PORTABLE inline std::uint32_t mixed(std::uint32_t bits) {
  bits = (bits ^ bits >> 16) * 0x85ebca6bU;
  bits = (bits ^ bits >> 13) * 0xc2b2ae35U;
  return bits ^ bits >> 16;
}

inline constexpr std::uint32_t kGolden = 0x9E3779B9U;  ///< golden ratio: sets neighbours apart

/// -log2(u) of u = (bits | 1) / 2^32, with 26 fractional bits; below 2^31. Whole by leading zeros;
/// -log2(1 - g / 2) as g (3 + g) / 4, which is at most 0.027 too much and has a slope that keeps
/// shares of experts within 2 % of those of the logarithm.
STOWAGE_PORTABLE inline std::uint32_t minus_log2(std::uint32_t bits) {
  constexpr std::uint64_t kOne = std::uint64_t{1} << 31;
  const int zeros = std::countl_zero(bits | 1U);
  const std::uint64_t g = ~((bits | 1U) << zeros) & (kOne - 1);
  return (static_cast<std::uint32_t>(zeros) << 26) |
         static_cast<std::uint32_t>(g * (3 * kOne + g) >> 38);
}

/// Place 1 .. E of an expert: a permutation for each layer, so that no rank has the busiest expert
/// of all of them. Rounds that permute the next power of two, until the result is a place.
STOWAGE_PORTABLE inline std::uint32_t expert_place(int experts, int layer, int expert) {
  const auto count = static_cast<std::uint32_t>(experts);
  const auto bits = static_cast<int>(std::bit_width(count - 1));
  const std::uint32_t mask = (1U << bits) - 1;
  const int half = bits < 2 ? 1 : (bits + 1) / 2;
  const std::uint32_t seed = mixed(static_cast<std::uint32_t>(layer) + kGolden);
  auto place = static_cast<std::uint32_t>(expert);
  do {
    for (int round = 0; round < 3; ++round)
      place = ((place ^ place >> half) * (seed | 1U) + (seed >> 16)) & mask;
  } while (place >= count);
  return place + 1;
}

/// Key of an expert for a token of a layer; below 2^31 for up to 2^16 experts. `load` is not none.
STOWAGE_PORTABLE inline std::uint32_t forced_key(ForcedLoad load, int experts, int layer,
                                                 std::int64_t token, int expert) {
  const std::uint32_t of_layer = mixed(static_cast<std::uint32_t>(layer) + kGolden);
  const std::uint32_t of_token = mixed(of_layer + static_cast<std::uint32_t>(token));
  const std::uint32_t key =
      minus_log2(mixed(of_token + static_cast<std::uint32_t>(expert) * kGolden));
  if (load != ForcedLoad::zipf) return key;
  const auto room = std::bit_width(static_cast<std::uint32_t>(experts) - 1);  // for the place
  return (key >> room) * expert_place(experts, layer, expert);
}

}  // namespace detail
}  // namespace stowage::kernels
