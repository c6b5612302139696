#pragma once

#include <bit>
#include <cstdint>

#include "execution/parallel_for.hpp"
#include "execution/philox.hpp"

/// Stochastic rounding (Croci et al., "Stochastic rounding: implementation, error analysis and
/// applications", 2022): a value becomes one of its two neighbours in a narrower type, the nearer
/// one more often, so that the mean over all random bits is the value itself. Integer arithmetic on
/// the bits of an fp32, the same on both backends.
namespace stowage::kernels {

/// A first moment in e4m3 is stored as kMomentScale m / sqrt(v), with v as it is stored: every
/// element has a scale of its own, which no layout of ranks, shards or buckets cuts. A ratio of 14
/// is the largest; one of 2^-11 still has all digits.
inline constexpr float kMomentScale = 32;
inline constexpr double kMostMomentRatio = 448 / static_cast<double>(kMomentScale);

/// Random bits of an element in a step: for its parameter, its first and its second moment.
struct RoundingBits {
  std::uint32_t parameter;  ///< 16 bits
  std::uint32_t m;          ///< 20 bits
  std::uint32_t v;          ///< 16 bits
};

/// The random bits of a tensor's elements in one step. They depend on the seed, the step, the
/// tensor's name and the element's index in the whole tensor, and on nothing else. Two neighbours
/// share a block of Philox, which is made once for both where they are asked for in turn.
class RoundingStream {
 public:
  /// Of all tensors of a step.
  STOWAGE_PORTABLE static std::uint64_t key(std::uint64_t seed, std::int64_t step) {
    constexpr std::uint64_t kStream = execution::stream_of("optimizer/rounding");
    return execution::random_bits(seed, kStream, static_cast<std::uint64_t>(step));
  }

  /// @param stream execution::stream_of the tensor's name
  STOWAGE_PORTABLE RoundingStream(std::uint64_t key, std::uint64_t stream)
      : key_(key), stream_(stream) {}

  STOWAGE_PORTABLE RoundingBits operator()(std::int64_t element) {
    if (element / 2 != pair_) {
      pair_ = element / 2;
      block_ = execution::philox(key_, stream_, static_cast<std::uint64_t>(pair_));
    }
    const bool odd = element % 2 != 0;
    const std::uint32_t low = odd ? block_.word[2] : block_.word[0];
    const std::uint32_t high = odd ? block_.word[3] : block_.word[1];
    return {low & 0xffffU, high >> 12, low >> 16};
  }

 private:
  std::uint64_t key_, stream_;
  std::int64_t pair_ = -1;
  execution::PhiloxBlock block_ = {};
};

/// The bits of a bf16. @param random 16 bits
STOWAGE_PORTABLE inline std::uint16_t round_to_bf16(float value, std::uint32_t random) {
  if (value != value) return 0x7fff;
  return static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(value) + random) >> 16);
}

/// The bits of an e4m3; beyond 448 it is 448. @param random 20 bits
STOWAGE_PORTABLE inline std::uint8_t round_to_e4m3(float value, std::uint32_t random) {
  constexpr float kLeastNormal = 0x1p-6F;
  constexpr std::uint32_t kBias = 127 - 7, kLargest = 0x7e;
  if (value != value) return 0x7f;
  const std::uint32_t sign = std::bit_cast<std::uint32_t>(value) >> 31;
  float magnitude = sign != 0 ? -value : value;
  // Below the least normal value all steps are those above it: moved there, and back by a binade.
  const bool subnormal = magnitude < kLeastNormal;
  if (subnormal) magnitude += kLeastNormal;
  std::uint32_t code = ((std::bit_cast<std::uint32_t>(magnitude) + random) >> 20) - (kBias << 3);
  if (subnormal) code -= 8;
  return static_cast<std::uint8_t>(sign << 7 | (code < kLargest ? code : kLargest));
}

/// The value of an e4m3, which is finite.
STOWAGE_PORTABLE inline float from_e4m3(std::uint8_t bits) {
  const auto moved = std::bit_cast<float>(static_cast<std::uint32_t>(bits & 0x7fU) << 20);
  return (bits & 0x80U) != 0 ? moved * -0x1p120F : moved * 0x1p120F;
}

}  // namespace stowage::kernels
