#pragma once

#include <string>
#include <vector>

#include "execution/program.hpp"
#include "offload/rates.hpp"

namespace stowage::layers {

/// Predicted time of the parts of a model, forward and backward of one microbatch.
struct PartTimes {
  double embedding_s = 0;
  std::vector<double> layers_s;
  double head_s = 0;  ///< with the loss
};

/// @param program a step of the whole model with one microbatch
PartTimes predict_parts(const execution::Program& program, int layers, const offload::Rates& rates);

/// A pattern without cuts, with cuts '|' that leave the slowest stage as little time as any; of
/// those, the most even ones.
/// @throws Error (exit 2) if there are too few layers
std::string balanced_cuts(const std::string& pattern, int stages, const PartTimes& times);

}  // namespace stowage::layers
