#include "layers/schedule/pipeline.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "execution/error.hpp"

namespace stowage::layers {
namespace {

using Passes = std::vector<Pass>;

/// The n-th forward or backward of a rank: microbatches in groups of as many as there are ranks,
/// each group through one stage of the rank after the other.
Pass nth_pass(PipelineShape shape, Pass::Kind kind, int n, int microbatches) {
  const int group = n / shape.stages();
  const int first = group * shape.ranks;
  const int width = std::min(shape.ranks, microbatches - first);  // of the last group: the rest
  const int at = n - group * shape.stages();
  const int slot = first + at % width;
  const int chunk = at / width;
  return {.kind = kind,
          .chunk = kind == Pass::Kind::backward ? shape.virtual_stages - 1 - chunk : chunk,
          .slot = slot,
          .accumulate = slot > 0,
          .last = slot == microbatches - 1};
}

/// Some forwards ahead, then forward and backward alternate, then the backwards that are left.
Passes one_forward_one_backward(PipelineShape shape, int rank, int microbatches) {
  const int behind = shape.ranks - 1 - rank;
  const int all = microbatches * shape.virtual_stages;
  const int ahead = std::min(all, shape.virtual_stages == 1
                                      ? behind
                                      : 2 * behind + (shape.virtual_stages - 1) * shape.ranks);
  Passes passes;
  for (int i = 0; i < all + ahead; ++i) {
    if (i < all) passes.push_back(nth_pass(shape, Pass::Kind::forward, i, microbatches));
    if (i >= ahead)
      passes.push_back(nth_pass(shape, Pass::Kind::backward, i - ahead, microbatches));
  }
  return passes;
}

/// The passes of 1F1B, with the weights of a microbatch so many backwards later that `delayed` at
/// most are not done.
Passes zero_bubble(PipelineShape shape, int rank, int microbatches, int delayed) {
  if (delayed == 0) return one_forward_one_backward(shape, rank, microbatches);
  Passes passes;
  int weights = 0;
  const auto add_weights = [&] {
    passes.push_back(nth_pass(shape, Pass::Kind::weights, weights++, microbatches));
  };
  for (Pass& pass : one_forward_one_backward(shape, rank, microbatches)) {
    const bool backward = pass.kind == Pass::Kind::backward;
    const int done = pass.slot;
    pass.weights_later = backward;
    passes.push_back(std::move(pass));
    if (backward && done + 1 - weights >= delayed) add_weights();
  }
  while (weights < microbatches) add_weights();
  return passes;
}

/// When the passes of all ranks end by the clock of with_exchanges, and what they hand on when.
class Clock {
 public:
  Clock(PipelineShape shape, const std::vector<Passes>& passes, std::vector<PassTimes> times)
      : shape_(shape),
        passes_(passes),
        times_(std::move(times)),
        ends_(passes.size()),
        moved_(passes.size()) {
    if (times_.empty()) times_.assign(static_cast<std::size_t>(shape_.stages()), {1, 1, 1});
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < shape_.ranks; ++rank)
        while (do_next(rank)) moved = true;
    }
    for (std::size_t rank = 0; rank < passes_.size(); ++rank)
      STOWAGE_ASSERT(ends_[rank].size() == passes_[rank].size(),
                     "passes of rank {} wait for each other", rank);
  }

  /// By pass.
  const std::vector<double>& ends(std::size_t rank) const { return ends_[rank]; }
  /// What a rank sends and receives, by the time at which it is made.
  const std::map<double, std::vector<StageTransfer>>& moved(std::size_t rank) const {
    return moved_[rank];
  }

 private:
  /// Longer than nothing: what is made of a message comes behind it.
  double time_s(const Pass& pass, int stage) const {
    constexpr double kShortest = 1e-9;
    return std::max(kShortest, pass_s(pass, times_[stage]));
  }

  /// @return false if the rank is done, or has not got what its next pass needs
  bool do_next(int rank) {
    const Passes& passes = passes_[rank];
    std::vector<double>& ends = ends_[rank];
    if (ends.size() == passes.size()) return false;
    const Pass& pass = passes[ends.size()];
    const int stage = shape_.stage(rank, pass.chunk);
    const bool gradient = pass.kind == Pass::Kind::backward;
    const int before = stage + (gradient ? 1 : -1), behind = stage + (gradient ? -1 : 1);
    const bool passed_on = pass.kind != Pass::Kind::weights;
    double begin = ends.empty() ? 0 : ends.back();
    if (passed_on && is_stage(before)) {
      const auto found = made_.find({stage, gradient, pass.slot});
      if (found == made_.end()) return false;
      begin = std::max(begin, found->second);
    }
    ends.push_back(begin + time_s(pass, stage));
    if (passed_on && is_stage(behind)) hand_on(rank, pass, gradient, behind, ends.back());
    return true;
  }

  bool is_stage(int stage) const { return stage >= 0 && stage < shape_.stages(); }

  void hand_on(int rank, const Pass& pass, bool gradient, int to, double time) {
    made_[{to, gradient, pass.slot}] = time;
    const int peer = to % shape_.ranks;
    std::vector<StageTransfer>& mine = moved_[rank][time];
    mine.insert(mine.begin(), {.sends = true,
                               .gradient = gradient,
                               .peer = peer,
                               .chunk = pass.chunk,
                               .slot = pass.slot});
    moved_[peer][time].push_back({.sends = false,
                                  .gradient = gradient,
                                  .peer = rank,
                                  .chunk = to / shape_.ranks,
                                  .slot = pass.slot});
  }

  PipelineShape shape_;
  const std::vector<Passes>& passes_;
  std::vector<PassTimes> times_;
  std::vector<std::vector<double>> ends_;
  std::vector<std::map<double, std::vector<StageTransfer>>> moved_;
  std::map<std::tuple<int, bool, int>, double> made_;  ///< by stage it goes to, gradient, slot
};

/// The passes of every rank, made by `of_rank`, with their exchanges.
template <class OfRank>
std::vector<RankPasses> of_all_ranks(PipelineShape shape, const std::vector<PassTimes>& times,
                                     OfRank&& of_rank) {
  std::vector<Passes> passes;
  for (int rank = 0; rank < shape.ranks; ++rank) passes.push_back(of_rank(rank));
  return with_exchanges(shape, passes, times);
}

}  // namespace

/// An earlier stage has more microbatches in flight, a later one more weights to do.
int most_delayed(int rank) { return rank == 0 ? 0 : rank + 1; }

double pass_s(const Pass& pass, const PassTimes& times) {
  switch (pass.kind) {
    case Pass::Kind::forward:
    case Pass::Kind::evaluate:
      return times.forward_s;
    case Pass::Kind::backward:
      return times.backward_s + (pass.weights_later ? 0 : times.weights_s);
    case Pass::Kind::weights:
      return times.weights_s;
    case Pass::Kind::exchange:
      break;
  }
  return 0;
}

std::vector<RankPasses> with_exchanges(PipelineShape shape, const std::vector<Passes>& passes,
                                       const std::vector<PassTimes>& times) {
  const Clock clock(shape, passes, times);
  std::vector<RankPasses> all;
  for (std::size_t rank = 0; rank < passes.size(); ++rank) {
    std::vector<Pass> merged;
    auto next = clock.moved(rank).begin();
    const auto last = clock.moved(rank).end();
    for (std::size_t i = 0; i <= passes[rank].size(); ++i) {
      const bool done = i == passes[rank].size();
      for (; next != last && (done || next->first < clock.ends(rank)[i]); ++next)
        merged.push_back({.kind = Pass::Kind::exchange, .transfers = next->second});
      if (!done) merged.push_back(passes[rank][i]);
    }
    all.push_back({{"pipeline", 1, std::move(merged)}});
  }
  return all;
}

std::vector<RankPasses> train_in_pipeline(PipelineShape shape, int microbatches,
                                          PipelineSchedule schedule,
                                          const std::vector<PassTimes>& times,
                                          const std::vector<int>& delayed) {
  const bool interleaved = schedule == PipelineSchedule::interleaved;
  STOWAGE_ASSERT(interleaved == (shape.virtual_stages > 1),
                 "{} stages of a rank do not fit the schedule", shape.virtual_stages);
  STOWAGE_ASSERT(!interleaved || microbatches % shape.ranks == 0,
                 "{} microbatches are no multiple of {} ranks", microbatches, shape.ranks);
  return of_all_ranks(shape, times, [&](int rank) {
    return schedule == PipelineSchedule::zero_bubble
               ? zero_bubble(shape, rank, microbatches,
                             delayed.empty() ? most_delayed(rank) : delayed[rank])
               : one_forward_one_backward(shape, rank, microbatches);
  });
}

std::vector<RankPasses> evaluate_in_pipeline(PipelineShape shape, int microbatches,
                                             const std::vector<PassTimes>& times) {
  return of_all_ranks(shape, times, [&](int) {
    Passes passes;
    for (int i = 0; i < microbatches * shape.virtual_stages; ++i)
      passes.push_back(nth_pass(shape, Pass::Kind::evaluate, i, microbatches));
    return passes;
  });
}

}  // namespace stowage::layers
