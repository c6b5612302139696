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

/// All stages at work, each pass taking one tick.
class ZeroBubble {
 public:
  ZeroBubble(int stages, int microbatches)
      : stages_(stages), microbatches_(microbatches), all_(static_cast<std::size_t>(stages)) {}

  std::vector<Turn> passes_of(int stage) {
    while (at(stage).weights < microbatches_) tick();
    return std::move(at(stage).passes);
  }

 private:
  /// How many passes of each kind a stage has done.
  struct Work {
    int forward = 0, backward = 0, weights = 0;
    std::vector<Turn> passes;
  };

  Work& at(int stage) { return all_[static_cast<std::size_t>(stage)]; }

  /// What a stage does depends on what its neighbours had done before the tick.
  void tick() {
    const std::vector<Work> before = all_;
    const auto was = [&](int stage) -> const Work& {
      return before[static_cast<std::size_t>(stage)];
    };
    for (int stage = 0; stage < stages_; ++stage) {
      const Work& own = was(stage);
      const int given = stage == 0 ? microbatches_ : was(stage - 1).forward;
      const int returned = stage == stages_ - 1 ? own.forward : was(stage + 1).backward;
      const bool room =
          own.forward - own.backward < stages_ - stage && own.forward - own.weights < stages_;
      if (own.backward < std::min(returned, own.forward))
        add(stage, Turn::Pass::backward, at(stage).backward++);
      else if (own.forward < given && room)
        add(stage, Turn::Pass::forward, at(stage).forward++);
      else if (own.weights < own.backward)
        add(stage, Turn::Pass::weights, at(stage).weights++);
    }
  }

  void add(int stage, Turn::Pass pass, int microbatch) {
    Turn turn = pass_of(pass, microbatch, microbatches_);
    turn.weights_later = pass == Turn::Pass::backward;
    at(stage).passes.push_back(std::move(turn));
  }

  int stages_;
  int microbatches_;
  std::vector<Work> all_;
};

std::vector<Turn> zero_bubble(PipelinePlace place, int microbatches) {
  return ZeroBubble(place.stages, microbatches).passes_of(place.stage);
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
