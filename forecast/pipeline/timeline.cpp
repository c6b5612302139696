#include "forecast/pipeline/timeline.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "execution/error.hpp"

namespace stowage::forecast {
namespace {

bool is_exchange(const layers::Pass& pass) { return pass.kind == layers::Pass::Kind::exchange; }

/// One kind of a rank's passes, each of which follows the one before it.
struct Line {
  std::vector<std::size_t> passes;
  std::size_t done = 0;
  double free_s = 0;  ///< since when the next one could begin

  bool is_done() const { return done == passes.size(); }
  std::size_t next() const { return passes[done]; }
};

class Follower {
 public:
  Follower(Timeline& timeline, const std::vector<layers::PassTimes>& times, double exchange_s)
      : timeline_(timeline),
        times_(times),
        exchange_s_(exchange_s),
        shape_{static_cast<int>(timeline.ranks.size()),
               static_cast<int>(times.size() / timeline.ranks.size())},
        passes_(timeline.ranks.size()),
        exchanges_(timeline.ranks.size()) {
    for (std::size_t rank = 0; rank < timeline_.ranks.size(); ++rank)
      for (std::size_t i = 0; i < timeline_.ranks[rank].passes.size(); ++i)
        (is_exchange(timeline_.ranks[rank].passes[i]) ? exchanges_ : passes_)[rank]
            .passes.push_back(i);
  }

  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < passes_.size(); ++rank)
        while (advance_pass(rank) || advance_exchange(rank)) moved = true;
    }
    for (std::size_t rank = 0; rank < passes_.size(); ++rank) {
      STOWAGE_ASSERT(passes_[rank].is_done() && exchanges_[rank].is_done(),
                     "ranks of a pipeline wait for each other");
      timeline_.time_s =
          std::max({timeline_.time_s, passes_[rank].free_s, exchanges_[rank].free_s});
    }
  }

 private:
  using Message = std::tuple<int, bool, int>;  ///< stage that it goes to, gradient, slot

  bool advance_pass(std::size_t rank) {
    Line& line = passes_[rank];
    if (line.is_done()) return false;
    const layers::Pass& pass = timeline_.ranks[rank].passes[line.next()];
    const int stage = shape_.stage(static_cast<int>(rank), pass.chunk);
    const bool gradient = pass.kind == layers::Pass::Kind::backward;
    double given_s = 0;
    if (pass.kind != layers::Pass::Kind::weights && stage != (gradient ? shape_.stages() - 1 : 0)) {
      const auto found = come_.find({stage, gradient, pass.slot});
      if (found == come_.end()) return false;
      given_s = found->second;
    }
    const double time_s = pass_s(pass, times_[stage]);
    const double begin_s = std::max(line.free_s, given_s);
    line.free_s = begin_s + time_s;
    timeline_.ranks[rank].spans[line.next()] = {begin_s, line.free_s};
    timeline_.ranks[rank].busy_s += time_s;
    ++line.done;
    return true;
  }

  /// @return whether something new is known of the rank's next exchange
  bool advance_exchange(std::size_t rank) {
    Line& line = exchanges_[rank];
    if (line.is_done()) return false;
    const layers::Pass& pass = timeline_.ranks[rank].passes[line.next()];
    Timeline::Span& span = timeline_.ranks[rank].spans[line.next()];
    bool news = false;
    if (span.begin_s < 0) {
      const bool sends = std::ranges::any_of(pass.transfers, &layers::StageTransfer::sends);
      const Line& passes = passes_[rank];
      if (sends && !passes.is_done() && passes.next() < line.next()) return false;
      span.begin_s = std::max(line.free_s, sends ? made_s(rank, line.next()) : 0);
      for (const layers::StageTransfer& transfer : pass.transfers)
        (transfer.sends ? sent_ : received_)[message(rank, transfer)] = span.begin_s;
      news = true;
    }
    double met_s = span.begin_s;
    for (const layers::StageTransfer& transfer : pass.transfers) {
      const auto& theirs = transfer.sends ? received_ : sent_;
      const auto found = theirs.find(message(rank, transfer));
      if (found == theirs.end()) return news;
      met_s = std::max(met_s, found->second);
    }
    span.end_s = line.free_s = met_s + exchange_s_;
    for (const layers::StageTransfer& transfer : pass.transfers)
      if (!transfer.sends) come_[message(rank, transfer)] = span.end_s;
    ++line.done;
    return true;
  }

  /// The end of the last pass before this entry.
  double made_s(std::size_t rank, std::size_t pass) const {
    const Timeline::Rank& line = timeline_.ranks[rank];
    while (pass-- > 0)
      if (!is_exchange(line.passes[pass])) return line.spans[pass].end_s;
    return 0;
  }

  Message message(std::size_t rank, const layers::StageTransfer& transfer) const {
    const int here = shape_.stage(static_cast<int>(rank), transfer.chunk);
    return {transfer.destination(here), transfer.gradient, transfer.slot};
  }

  Timeline& timeline_;
  const std::vector<layers::PassTimes>& times_;
  double exchange_s_;
  layers::PipelineShape shape_;
  std::vector<Line> passes_, exchanges_;       ///< by rank
  std::map<Message, double> sent_, received_;  ///< when either side came to it
  std::map<Message, double> come_;             ///< when it was through
};

}  // namespace

double Timeline::bubble() const {
  double busy_s = 0;
  for (const Rank& rank : ranks) busy_s += rank.busy_s;
  return time_s > 0 ? 1 - busy_s / (time_s * static_cast<double>(ranks.size())) : 0;
}

Timeline follow(const std::vector<layers::RankPasses>& passes,
                const std::vector<layers::PassTimes>& times, double exchange_s) {
  Timeline timeline;
  for (const layers::RankPasses& sections : passes) {
    Timeline::Rank& rank = timeline.ranks.emplace_back();
    for (const layers::PassSection& section : sections)
      rank.passes.insert(rank.passes.end(), section.passes.begin(), section.passes.end());
    rank.spans.resize(rank.passes.size());
  }
  Follower(timeline, times, exchange_s).run();
  return timeline;
}

}  // namespace stowage::forecast
