#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace stowage::layers {

/// Consecutive layers that one rank of a pipeline computes in one go, with what stands before the
/// first layer of the model and behind the last. Of p ranks with v stages each, rank r has the
/// stages r, p + r, 2 p + r … of the model.
struct Stage {
  int index = 0;  ///< among all stages of the model
  int begin = 0;  ///< layers [begin, end) of the model
  int end = 0;
  bool embedding = false;  ///< begins with the embedding: the first stage
  bool head = false;       ///< ends with the head and the loss: the last stage
};

/// Predicted time of the passes of one microbatch through some layers.
struct PassTimes {
  double forward_s = 0;
  double backward_s = 0;  ///< without what can be left for later
  double weights_s = 0;   ///< that: products that make weights' gradients

  double all_s() const { return forward_s + backward_s + weights_s; }
  PassTimes& operator+=(const PassTimes& other);
};

/// The order in which stages pass microbatches on.
enum class PipelineSchedule : unsigned char {
  one_forward_one_backward,  ///< 1F1B
  interleaved,               ///< 1F1B over several stages of each rank
  zero_bubble,               ///< the weights' gradients fill what 1F1B leaves empty
  automatic                  ///< the quickest one as predicted
};

/// The value of parallel.schedule: "1f1b".
std::string_view name(PipelineSchedule schedule);

/// "layers 0 to 2 and 6 to 8": what stages of one rank compute.
std::string layers_text(const std::vector<Stage>& stages);

/// Under which names of a program what a stage is given and gives away are recorded: "stage.3".
std::string stage_prefix(const Stage& stage);

/// The stages of a model, in order: what lies between two cuts '|' of the pattern, or an equal
/// share of the layers, the first stages one more, if it has no cuts. One stage is the whole model,
/// whatever the cuts.
/// @throws Error (exit 2) if the pattern has cuts, but not for this many stages, or too few layers
std::vector<Stage> divide(const std::string& pattern, int stages);

/// @throws Error (exit 2) that says so
[[noreturn]] void throw_too_few_layers(const std::string& pattern, int layers, int stages);

}  // namespace stowage::layers
