#pragma once

#include <cstdint>
#include <cstring>

#include "execution/parallel_for.hpp"
#include "execution/philox.hpp"

/// What ranks send in a check and what they must find: loops that run where the data is.
namespace stowage::drivers {

/// Element i of rank r: 24 random bits in [-1, 1), [-1/8, 1/8) or [-1/64, 1/64) by rank, so that
/// sums round, and the order of a sum shows in its bits from three ranks on.
STOWAGE_PORTABLE inline float sent(std::uint64_t seed, int rank, std::int64_t i) {
  const float limit = rank % 3 == 0 ? 1.0F : rank % 3 == 1 ? 0x1p-3F : 0x1p-6F;
  return execution::symmetric_uniform(seed, static_cast<std::uint64_t>(rank) + 1,
                                      static_cast<std::uint64_t>(i), limit);
}

/// A rank that sends nothing: its elements are what outputs hold before.
inline constexpr int kNobody = -1;

struct WriteSent {
  std::uint64_t seed;
  int rank;
  float* out;

  STOWAGE_PORTABLE void operator()(std::int64_t i) const { out[i] = sent(seed, rank, i); }
};

/// What a rank's output holds by definition if element i of rank r's input is sent(seed, r, i):
/// element i is the sum of sent(seed, r, offset + i) in rank order, or
/// sent(seed, sender + i / part, offset + i % part).
struct Definition {
  std::uint64_t seed;
  bool sums;
  bool any_order;  ///< of the sum: a library chose it
  int ranks, sender;
  std::int64_t part, offset;

  /// Whether element i may have this value: all its bits, or where a sum has any order, the
  /// rounding of two such sums apart (each at most (ranks - 1) eps / 2 of the sum of magnitudes:
  /// Higham, "Accuracy and Stability of Numerical Algorithms", section 4.2).
  STOWAGE_PORTABLE bool allows(std::int64_t i, float value) const {
    float wanted = 0, magnitude = 0;
    if (sums) {
      wanted = sent(seed, 0, offset + i);
      magnitude = wanted < 0 ? -wanted : wanted;
      for (int r = 1; r < ranks; ++r) {
        const float one = sent(seed, r, offset + i);
        wanted += one;
        magnitude += one < 0 ? -one : one;
      }
    } else {
      wanted = sent(seed, sender + static_cast<int>(i / part), offset + i % part);
    }
    if (sums && any_order) {
      const float apart = value < wanted ? wanted - value : value - wanted;
      return apart <= static_cast<float>(ranks - 1) * 0x1p-23F * magnitude;  // false for a NaN
    }
    std::uint32_t bits = 0, wanted_bits = 0;
    memcpy(&bits, &value, sizeof bits);
    memcpy(&wanted_bits, &wanted, sizeof wanted_bits);
    return bits == wanted_bits;
  }
};

/// wrong[lane] = how many of the elements lane, lane + lanes, … are not what is defined.
struct CountWrong {
  Definition definition;
  const float* values;
  std::int64_t count, lanes;
  std::int64_t* wrong;

  STOWAGE_PORTABLE void operator()(std::int64_t lane) const {
    std::int64_t errors = 0;
    for (std::int64_t i = lane; i < count; i += lanes) errors += !definition.allows(i, values[i]);
    wrong[lane] = errors;
  }
};

}  // namespace stowage::drivers
