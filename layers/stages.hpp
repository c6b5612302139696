#pragma once

#include <string>
#include <vector>

namespace stowage::layers {

/// Consecutive layers that one rank of a pipeline computes in one go, with what stands before the
/// first layer of the model and behind the last.
struct Stage {
  int begin = 0;  ///< layers [begin, end) of the model
  int end = 0;
  bool embedding = false;  ///< begins with the embedding: the first stage
  bool head = false;       ///< ends with the head and the loss: the last stage
};

/// The order in which stages pass microbatches on.
enum class PipelineSchedule : unsigned char {
  one_forward_one_backward,  ///< 1F1B
  zero_bubble,               ///< the weights' gradients fill what 1F1B leaves empty
  automatic                  ///< the quicker one as predicted
};

/// The stages of a model, in order: what lies between two cuts '|' of the pattern, or an equal
/// share of the layers, the first stages one more, if it has no cuts. One stage is the whole model,
/// whatever the cuts.
/// @throws Error (exit 2) if the pattern has cuts, but not for this many stages, or too few layers
std::vector<Stage> divide(const std::string& pattern, int stages);

}  // namespace stowage::layers
