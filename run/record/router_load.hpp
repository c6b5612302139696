#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace stowage::run {

/// How even a step's tokens fall on the experts of each layer.
struct RouterLoad {
  std::vector<double> busiest;  ///< tokens of the busiest expert, over the mean
  std::vector<double> entropy;  ///< of the shares, over that of equal ones: 1 is even, 0 one expert
  std::vector<double> dead;     ///< experts without a token

  /// @param tokens of each expert, layer by layer
  RouterLoad(std::span<const double> tokens, std::int64_t layers);

  /// All three one behind the other, as columns of a series.
  std::vector<double> values() const;
};

}  // namespace stowage::run
