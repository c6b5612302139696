#include "layers/timeline.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "execution/error.hpp"

namespace stowage::layers {
namespace {

bool is_exchange(const Turn& turn) { return turn.pass == Turn::Pass::exchange; }

bool any_hop(const Turn& turn, bool sends) {
  return std::ranges::any_of(turn.hops, [&](const Hop& hop) { return hop.sends == sends; });
}

double time_of(const Turn& turn, const PassTimes& times) {
  switch (turn.pass) {
    case Turn::Pass::forward:
    case Turn::Pass::evaluate:
      return times.forward_s;
    case Turn::Pass::backward:
      return times.backward_s + (turn.weights_later ? 0 : times.weights_s);
    case Turn::Pass::weights:
      return times.weights_s;
    case Turn::Pass::exchange:
      break;
  }
  return 0;
}

class Follower {
 public:
  Follower(Timeline& timeline, const std::vector<PassTimes>& times, double exchange_s)
      : timeline_(timeline), times_(times), exchange_s_(exchange_s) {}

  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int stage = 0; stage < static_cast<int>(timeline_.stages.size()); ++stage)
        for (std::size_t i = 0; i < at(stage).turns.size(); ++i)
          if (at(stage).spans[i].end_s < 0) moved = advance(stage, i) || moved;
    }
    for (const Timeline::Stage& stage : timeline_.stages)
      for (const Timeline::Span& span : stage.spans) {
        STOWAGE_ASSERT(span.end_s >= 0, "stages of a pipeline wait for each other");
        timeline_.time_s = std::max(timeline_.time_s, span.end_s);
      }
  }

 private:
  using Message = std::tuple<int, int, bool, int>;  ///< from, to, gradient, slot

  Timeline::Stage& at(int stage) { return timeline_.stages[static_cast<std::size_t>(stage)]; }

  /// The end of the last turn before `i` that is an exchange, or is none; -1: not known, 0: none.
  double end_before(int stage, std::size_t i, bool exchange) {
    while (i-- > 0)
      if (is_exchange(at(stage).turns[i]) == exchange) return at(stage).spans[i].end_s;
    return 0;
  }

  /// @return whether something new is known of the turn
  bool advance(int stage, std::size_t i) {
    const Turn& turn = at(stage).turns[i];
    return is_exchange(turn) ? advance_exchange(stage, i, turn) : advance_pass(stage, i, turn);
  }

  bool advance_pass(int stage, std::size_t i, const Turn& turn) {
    const double free_s = end_before(stage, i, false);
    const bool waits =
        i > 0 && is_exchange(at(stage).turns[i - 1]) && any_hop(at(stage).turns[i - 1], false);
    const double given_s = waits ? at(stage).spans[i - 1].end_s : 0;
    if (free_s < 0 || given_s < 0) return false;
    const double time_s = time_of(turn, times_[static_cast<std::size_t>(stage)]);
    const double begin_s = std::max(free_s, given_s);
    at(stage).spans[i] = {begin_s, begin_s + time_s};
    at(stage).busy_s += time_s;
    return true;
  }

  bool advance_exchange(int stage, std::size_t i, const Turn& turn) {
    Timeline::Span& span = at(stage).spans[i];
    bool news = false;
    if (span.begin_s < 0) {
      const double free_s = end_before(stage, i, true);
      const double made_s = any_hop(turn, true) ? end_before(stage, i, false) : 0;
      if (free_s < 0 || made_s < 0) return false;
      span.begin_s = std::max(free_s, made_s);
      for (const Hop& hop : turn.hops)
        (hop.sends ? sent_ : received_)[message(stage, hop)] = span.begin_s;
      news = true;
    }
    double met_s = span.begin_s;
    for (const Hop& hop : turn.hops) {
      const auto& theirs = hop.sends ? received_ : sent_;
      const auto found = theirs.find(message(stage, hop));
      if (found == theirs.end()) return news;
      met_s = std::max(met_s, found->second);
    }
    span.end_s = met_s + exchange_s_;
    return true;
  }

  static Message message(int stage, const Hop& hop) {
    return {hop.sends ? stage : hop.peer, hop.sends ? hop.peer : stage, hop.gradient, hop.slot};
  }

  Timeline& timeline_;
  const std::vector<PassTimes>& times_;
  double exchange_s_;
  std::map<Message, double> sent_, received_;  ///< when either side came to it
};

}  // namespace

PassTimes& PassTimes::operator+=(const PassTimes& other) {
  forward_s += other.forward_s;
  backward_s += other.backward_s;
  weights_s += other.weights_s;
  return *this;
}

double Timeline::bubble() const {
  double busy_s = 0;
  for (const Stage& stage : stages) busy_s += stage.busy_s;
  return time_s > 0 ? 1 - busy_s / (time_s * static_cast<double>(stages.size())) : 0;
}

Timeline follow(const std::vector<Turns>& turns, const std::vector<PassTimes>& times,
                double exchange_s) {
  Timeline timeline;
  for (const Turns& sections : turns) {
    Timeline::Stage& stage = timeline.stages.emplace_back();
    for (const TurnSection& section : sections)
      stage.turns.insert(stage.turns.end(), section.turns.begin(), section.turns.end());
    stage.spans.resize(stage.turns.size());
  }
  Follower(timeline, times, exchange_s).run();
  return timeline;
}

}  // namespace stowage::layers
