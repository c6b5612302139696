#include "layers/model/stages.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "execution/error.hpp"

namespace stowage::layers {
namespace {

/// Where each stage ends, as cut by hand: layers before each '|', and all of them.
std::vector<int> ends_by_cuts(const std::string& pattern) {
  std::vector<int> ends;
  int layers = 0;
  for (const char letter : pattern)
    if (letter == '|')
      ends.push_back(layers);
    else
      ++layers;
  ends.push_back(layers);
  return ends;
}

std::vector<int> equal_ends(int layers, int stages) {
  std::vector<int> ends;
  for (int s = 0; s < stages; ++s)
    ends.push_back((s + 1) * (layers / stages) + std::min(s + 1, layers % stages));
  return ends;
}

}  // namespace

void throw_too_few_layers(const std::string& pattern, int layers, int stages) {
  execution::throw_usage(
      "model.pattern = \"{}\": {} layers are too few for {} stages "
      "(parallel.pipeline * parallel.virtual_stages)",
      pattern, layers, stages);
}

PassTimes& PassTimes::operator+=(const PassTimes& other) {
  forward_s += other.forward_s;
  backward_s += other.backward_s;
  weights_s += other.weights_s;
  return *this;
}

std::string stage_prefix(const Stage& stage) { return fmt::format("stage.{}", stage.index); }

std::string_view name(PipelineSchedule schedule) {
  switch (schedule) {
    case PipelineSchedule::one_forward_one_backward:
      return "1f1b";
    case PipelineSchedule::interleaved:
      return "interleaved";
    case PipelineSchedule::zero_bubble:
      return "zero_bubble";
    case PipelineSchedule::automatic:
      return "auto";
  }
  return "?";
}

std::string layers_text(const std::vector<Stage>& stages) {
  std::string text = "layers";
  for (const Stage& stage : stages)
    text += fmt::format("{} {} to {}", &stage == stages.data() ? "" : " and", stage.begin,
                        stage.end - 1);
  return text;
}

std::vector<Stage> divide(const std::string& pattern, int stages) {
  std::vector<int> ends = ends_by_cuts(pattern);
  const int layers = ends.back();
  const auto cut = static_cast<int>(ends.size());
  if (stages == 1) ends = {layers};
  if (stages > 1 && cut > 1 && cut != stages)
    execution::throw_usage(
        "model.pattern = \"{}\": it has {} stages, parallel.pipeline * parallel.virtual_stages "
        "asks for {}",
        pattern, cut, stages);
  if (layers < stages) throw_too_few_layers(pattern, layers, stages);
  if (stages > 1 && cut == 1) ends = equal_ends(layers, stages);
  std::vector<Stage> all;
  for (int s = 0; s < stages; ++s)
    all.push_back(
        {s, s == 0 ? 0 : ends[static_cast<std::size_t>(s) - 1], ends[s], s == 0, s == stages - 1});
  return all;
}

}  // namespace stowage::layers
