#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace stowage::inputs {

/// Which of several sources sample n of a training run comes from, and which of that source's own
/// samples it is. Both follow from n and the weights alone, so that a position is one integer.
///
/// Weights are rounded to 1 / kCycle, at least one. A cycle of kCycle samples has each source as
/// often as that, spread evenly: next is the source that is farthest behind its share.
class Mixture {
 public:
  static constexpr std::int64_t kCycle = 1 << 16;

  struct Sample {
    std::size_t source = 0;
    std::int64_t index = 0;  ///< samples of this source before it
  };

  /// @param weights each above 0, of any sum; at most kMostSources
  explicit Mixture(std::span<const double> weights);

  Sample at(std::int64_t sample) const;
  /// Part of all samples that is of a source.
  double share(std::size_t source) const;

  static constexpr std::size_t kMostSources = 1024;

 private:
  std::vector<std::int32_t> counts_;  // of each source, in a cycle
  std::vector<Sample> cycle_;         // empty with one source
};

}  // namespace stowage::inputs
