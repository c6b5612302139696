#include "offload/prediction.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "execution/plan_shape.hpp"

namespace stowage::offload {

using execution::Lane;
using execution::Plan;
using execution::Program;
using execution::Step;

namespace {

/// A section that repeats settles after a few periods; the rest take as long as the last of them.
constexpr int kPeriods = 4;
/// What slows a copy down may be issued behind it. So a plan is followed again beside what was
/// found before, until its steps end at the same times to this part of its own, or so often.
constexpr double kSettled = 1e-4;
constexpr int kMostRuns = 8;

/// When something is busy: intervals in order.
class Busy {
 public:
  void add(double begin_s, double end_s) { intervals_.push_back({begin_s, end_s}); }

  /// Puts intervals that were added in any order into theirs, and joins those that touch.
  void merge() { intervals_ = merged(std::move(intervals_)); }

  /// When work ends that takes alone_s while it is not busy, and beside_s while it is.
  double end_of(double begin_s, double alone_s, double beside_s) const {
    double left = alone_s > 0 ? 1 : 0;
    for (auto at = first_behind(begin_s); at != intervals_.end() && left > 0; ++at) {
      if (const double gap_s = at->begin_s - begin_s; gap_s > 0) {
        if (gap_s >= left * alone_s) break;
        left -= gap_s / alone_s;
        begin_s = at->begin_s;
      }
      const double done = std::min(left, (at->end_s - begin_s) / beside_s);
      left -= done;
      begin_s += done * beside_s;
    }
    return begin_s + left * alone_s;
  }

  /// Part of [begin_s, end_s) during which it is busy.
  double overlap(double begin_s, double end_s) const {
    double sum_s = 0;
    for (auto at = first_behind(begin_s); at != intervals_.end() && at->begin_s < end_s; ++at)
      sum_s += std::min(end_s, at->end_s) - std::max(begin_s, at->begin_s);
    return sum_s;
  }

 private:
  std::vector<TimeSpan>::const_iterator first_behind(double begin_s) const {
    return std::ranges::upper_bound(intervals_, begin_s, {}, &TimeSpan::end_s);
  }

  std::vector<TimeSpan> intervals_;
};

/// When the machine does what slows other work down.
struct Activity {
  Busy to_host, from_host, counted, computed;

  void merge() {
    for (Busy* busy : {&to_host, &from_host, &counted, &computed}) busy->merge();
  }
};

class Run {
 public:
  /// @param beside what an earlier run has found, or null. Without it, work is slowed down by the
  ///   copies that were issued before alone, and something always computes beside an exchange.
  Run(const Program& program, const Plan& plan, const Rates& rates, bool copies_take_time,
      const Activity* beside = nullptr)
      : program_(program),
        plan_(plan),
        rates_(rates),
        copies_take_time_(copies_take_time),
        computing_(beside == nullptr ? nullptr : &beside->computed),
        beside_(beside == nullptr ? activity_ : *beside),
        free_s_(plan.queues.size(), 0),
        event_s_(static_cast<std::size_t>(plan.events), 0) {
    result_.begin_s.assign(plan.steps.size(), -1);
    result_.end_s.assign(plan.steps.size(), -1);
  }

  /// Copies that are carried into the next execution show what they cost in the second.
  Prediction go() {
    const int carried = execution::first_carried(plan_);
    double start_s = 0;
    execute();
    if (carried < static_cast<int>(plan_.steps.size())) {
      start_s = free_s_[0];
      skipped_s_ = 0;
      result_.begin_s.assign(plan_.steps.size(), -1);
      execute();
      result_.time_s = free_s_[0] - start_s + skipped_s_;
    } else {
      result_.time_s = *std::max_element(free_s_.begin(), free_s_.end()) + skipped_s_;
    }
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      const double from_s =
          start_s + (static_cast<int>(i) < carried ? 0 : result_.time_s - skipped_s_);
      result_.begin_s[i] -= from_s;
      result_.end_s[i] -= from_s;
    }
    activity_.merge();
    return std::move(result_);
  }

  /// After go(): when what was done, of all queues.
  Activity take_activity() { return std::move(activity_); }

 private:
  void execute() {
    for (const execution::StepRange& section : plan_.sections) {
      const int periods = std::min(section.repeat, kPeriods);
      double before_s = 0;
      for (int period = 0; period < periods; ++period) {
        before_s = free_s_[0];
        for (int i = section.begin; i < section.end; ++i) issue(i);
      }
      skipped_s_ += (section.repeat - periods) * (free_s_[0] - before_s);
    }
  }

  void issue(int index) {
    const auto at = static_cast<std::size_t>(index);
    const Step& step = plan_.steps[at];
    double& free_s = free_s_[step.queue];
    double begin_s = free_s;
    for (const int event : step.waits) begin_s = std::max(begin_s, event_s_[event]);
    free_s = end_of(step, begin_s);
    if (step.records >= 0) event_s_[step.records] = free_s;
    if (result_.begin_s[at] < 0) {
      result_.begin_s[at] = begin_s;
      result_.end_s[at] = free_s;
    }
  }

  double end_of(const Step& step, double begin_s) {
    const Lane lane = plan_.queues[step.queue].lane;
    switch (step.what) {
      case Step::What::mark:
        return begin_s;
      case Step::What::copy_out:
        return copy(step, begin_s, rates_.d2h_s(bytes_of(step)), activity_.to_host,
                    beside_.from_host);
      case Step::What::copy_in:
        return copy(step, begin_s, rates_.h2d_s(bytes_of(step)), activity_.from_host,
                    beside_.to_host);
      case Step::What::run:
      case Step::What::rerun:
        break;
    }
    const double time_s = rates_.time_s(program_, step.op);
    if (lane == Lane::comm) {
      const double with_compute_s = rates_.with_compute_s(program_, step.op);
      return computing_ == nullptr ? begin_s + with_compute_s
                                   : computing_->end_of(begin_s, time_s, with_compute_s);
    }
    if (lane != Lane::compute) return begin_s + time_s;
    const auto slowed_s = [&](const Busy& copies, const Slowdown& slowdown) {
      const double overlap_s = copies.overlap(begin_s, begin_s + time_s);
      if (overlap_s == 0) return 0.0;
      return overlap_s * (rates_.with_copies(program_, step.op, slowdown) - 1);
    };
    const double end_s =
        begin_s + time_s + slowed_s(beside_.to_host, rates_.d2h_slowdown) +
        slowed_s(beside_.from_host, rates_.h2d_slowdown) +
        beside_.counted.overlap(begin_s, begin_s + time_s) * (rates_.counted_slowdown - 1);
    activity_.computed.add(begin_s, end_s);
    return end_s;
  }

  std::size_t bytes_of(const Step& copy) const {
    return moved_bytes(program_, plan_.places[copy.places[0]]);
  }

  double copy(const Step& step, double begin_s, double time_s, Busy& own, const Busy& other) {
    if (!copies_take_time_) return begin_s;
    const double end_s = other.end_of(begin_s, time_s, time_s * rates_.duplex_slowdown());
    own.add(begin_s, end_s);
    if (execution::counts_rows(step)) activity_.counted.add(begin_s, end_s);
    return end_s;
  }

  const Program& program_;
  const Plan& plan_;
  const Rates& rates_;
  bool copies_take_time_;
  const Busy* computing_;
  Activity activity_;
  const Activity& beside_;
  std::vector<double> free_s_;   ///< by queue
  std::vector<double> event_s_;  ///< by event: its latest record
  double skipped_s_ = 0;
  Prediction result_;
};

bool settled(const Prediction& before, const Prediction& now) {
  return std::ranges::equal(before.end_s, now.end_s, [&](double a, double b) {
    return std::abs(a - b) <= kSettled * now.time_s;
  });
}

}  // namespace

std::vector<TimeSpan> merged(std::vector<TimeSpan> spans) {
  std::ranges::sort(spans, {}, &TimeSpan::begin_s);
  std::vector<TimeSpan> all;
  for (const TimeSpan& span : spans)
    if (!all.empty() && span.begin_s <= all.back().end_s)
      all.back().end_s = std::max(all.back().end_s, span.end_s);
    else
      all.push_back(span);
  return all;
}

std::size_t moved_bytes(const Program& program, const execution::Place& place) {
  const execution::TensorInfo& info = program.info(place.tensor);
  return info.counts_rows() ? info.moved_bytes(place.buffer) : place.bytes;
}

Prediction predict(const Program& program, const Plan& plan, const Rates& rates) {
  const bool copies = std::ranges::any_of(plan.steps, execution::is_copy);
  const int most = copies ? kMostRuns : rates.links_with_compute.empty() ? 1 : 2;
  const auto follow = [&](const Rates& with, bool copies_take_time) {
    Activity beside;
    Prediction found;
    for (int i = 0; i < most; ++i) {
      Run run(program, plan, with, copies_take_time, i == 0 ? nullptr : &beside);
      const Prediction before = std::exchange(found, run.go());
      if (i > 0 && settled(before, found)) break;
      beside = run.take_activity();
    }
    return found;
  };
  Prediction prediction = follow(rates, true);
  // The same steps with copies that take no time also slow nothing down: what is left is waiting.
  Rates unhindered = rates;
  unhindered.d2h_slowdown = unhindered.h2d_slowdown = {};
  unhindered.counted_slowdown = 1;
  prediction.exposed_s = follow(unhindered, true).time_s - follow(unhindered, false).time_s;
  return prediction;
}

}  // namespace stowage::offload
