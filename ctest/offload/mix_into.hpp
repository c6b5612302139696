#pragma once

#include <cstdint>

#include "execution/parallel_for.hpp"

namespace stowage::ctest {

/// Writes one buffer of an op of RandomProgram: every element depends on one element of every
/// source, and on its own old value if it is updated.
struct MixInto {
  static constexpr int kMostSources = 24;
  struct Source {
    const std::uint32_t* data;
    std::int64_t elements;
  };

  std::uint32_t* out;
  bool update;
  std::uint32_t salt;
  int count;
  Source sources[kMostSources];

  STOWAGE_PORTABLE static std::uint32_t mix(std::uint32_t a, std::uint32_t b) {
    a ^= b + 0x9e3779b9U + (a << 6) + (a >> 2);
    return a * 0x85ebca6bU ^ (a >> 13);
  }

  STOWAGE_PORTABLE void operator()(std::int64_t i) const {
    std::uint32_t value = update ? mix(salt, out[i]) : salt;
    for (int s = 0; s < count; ++s) value = mix(value, sources[s].data[i % sources[s].elements]);
    out[i] = value;
  }
};

}  // namespace stowage::ctest
