#include "layers/pipeline.hpp"

#include <algorithm>

namespace stowage::layers {
namespace {

Turn pass_of(Turn::Pass pass, int microbatch, int microbatches) {
  return {.pass = pass,
          .slot = microbatch,
          .accumulate = microbatch > 0,
          .last = microbatch == microbatches - 1};
}

/// What a pass needs from other stages, and what it gives them.
void add_received(PipelinePlace place, const Turn& turn, std::vector<Hop>& hops) {
  if (turn.pass == Turn::Pass::weights) return;
  const bool gradient = turn.pass == Turn::Pass::backward;
  const int peer = place.stage + (gradient ? 1 : -1);
  if (peer >= 0 && peer < place.stages)
    hops.push_back({.sends = false, .gradient = gradient, .peer = peer, .slot = turn.slot});
}

void add_sent(PipelinePlace place, const Turn& turn, std::vector<Hop>& hops) {
  if (turn.pass == Turn::Pass::weights) return;
  const bool gradient = turn.pass == Turn::Pass::backward;
  const int peer = place.stage + (gradient ? -1 : 1);
  if (peer >= 0 && peer < place.stages)
    hops.push_back({.sends = true, .gradient = gradient, .peer = peer, .slot = turn.slot});
}

std::vector<Turn> one_forward_one_backward(PipelinePlace place, int microbatches) {
  const int ahead = std::min(place.stages - 1 - place.stage, microbatches);
  std::vector<Turn> passes;
  for (int i = 0; i < microbatches + ahead; ++i) {
    if (i < microbatches) passes.push_back(pass_of(Turn::Pass::forward, i, microbatches));
    if (i >= ahead) passes.push_back(pass_of(Turn::Pass::backward, i - ahead, microbatches));
  }
  return passes;
}

/// The passes of 1F1B, with the weights of a microbatch as many backwards later as stages come
/// before: an earlier stage has more microbatches in flight, a later one more weights to do.
std::vector<Turn> zero_bubble(PipelinePlace place, int microbatches) {
  std::vector<Turn> passes;
  int weights = 0;
  const auto add_weights = [&] {
    passes.push_back(pass_of(Turn::Pass::weights, weights++, microbatches));
  };
  for (Turn& turn : one_forward_one_backward(place, microbatches)) {
    const bool backward = turn.pass == Turn::Pass::backward;
    const int done = turn.slot;
    turn.weights_later = backward;
    passes.push_back(std::move(turn));
    if (backward && done >= place.stage) add_weights();
  }
  while (weights < microbatches) add_weights();
  return passes;
}

}  // namespace

std::vector<Turn> with_exchanges(PipelinePlace place, const std::vector<Turn>& passes) {
  std::vector<Turn> turns;
  for (std::size_t i = 0; i <= passes.size(); ++i) {
    Turn exchange{.pass = Turn::Pass::exchange};
    if (i > 0) add_sent(place, passes[i - 1], exchange.hops);
    if (i < passes.size()) add_received(place, passes[i], exchange.hops);
    if (!exchange.hops.empty()) turns.push_back(std::move(exchange));
    if (i < passes.size()) turns.push_back(passes[i]);
  }
  return turns;
}

Turns train_in_pipeline(PipelinePlace place, int microbatches, PipelineSchedule schedule) {
  const std::vector<Turn> passes = schedule == PipelineSchedule::zero_bubble
                                       ? zero_bubble(place, microbatches)
                                       : one_forward_one_backward(place, microbatches);
  return {{"pipeline", 1, with_exchanges(place, passes)}};
}

Turns evaluate_in_pipeline(PipelinePlace place, int microbatches) {
  std::vector<Turn> passes;
  for (int i = 0; i < microbatches; ++i)
    passes.push_back(pass_of(Turn::Pass::evaluate, i, microbatches));
  return {{"pipeline", 1, with_exchanges(place, passes)}};
}

}  // namespace stowage::layers
