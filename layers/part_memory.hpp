#pragma once

#include <vector>

#include "layers/sharing.hpp"
#include "layers/turns.hpp"

namespace stowage::layers {

/// Bytes on a rank.
struct PartBytes {
  double state = 0;  ///< parameters, gradients, masters and moments
  double saved = 0;  ///< kept of one microbatch from forward to backward, if nothing leaves

  PartBytes& operator+=(const PartBytes& other) {
    state += other.state;
    saved += other.saved;
    return *this;
  }
};

/// What the parts of a model take, and what a rank of a pipeline has for them.
struct PartMemory {
  PartBytes embedding;
  std::vector<PartBytes> layers;
  PartBytes head;
  double budget = 0;  ///< bytes of a rank; 0: memory is not looked at
  int microbatches = 1;

  /// How far a rank with layers [begin, end) is above the budget. Of p stages, stage s (from 0)
  /// keeps at most p - s microbatches at a time, as in 1F1B; scratch and the rest of a step are not
  /// counted.
  double over(int stage, int stages, int begin, int end) const;
};

/// @param ranks those that share out the products of a layer; one stage
/// @param sharing how all ranks share states
PartMemory predict_memory(const ModelConfig& config, Precision precision, const StepShape& shape,
                          const parallel::Ranks& ranks, const Sharing& sharing);

}  // namespace stowage::layers
