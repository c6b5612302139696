#include "offload/prediction.hpp"

#include <algorithm>
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

/// When a direction of copies is busy: intervals in order.
class Busy {
 public:
  void add(double begin_s, double end_s) { intervals_.push_back({begin_s, end_s}); }

  /// Puts intervals that were added in any order into theirs, and joins those that touch.
  void merge() { intervals_ = merged(std::move(intervals_)); }

  /// When work ends that takes alone_s while it is not busy, and with_compute_s while it is.
  double end_of(double begin_s, double alone_s, double with_compute_s) const {
    double left = alone_s > 0 ? 1 : 0;
    for (auto at = std::ranges::lower_bound(intervals_, begin_s, {}, &TimeSpan::end_s);
         at != intervals_.end() && left > 0; ++at) {
      if (const double gap_s = at->begin_s - begin_s; gap_s > 0) {
        if (gap_s >= left * alone_s) break;
        left -= gap_s / alone_s;
        begin_s = at->begin_s;
      }
      const double done = std::min(left, (at->end_s - begin_s) / with_compute_s);
      left -= done;
      begin_s += done * with_compute_s;
    }
    return begin_s + left * alone_s;
  }

  /// Part of [begin_s, end_s) during which it is busy.
  double overlap(double begin_s, double end_s) const {
    double sum_s = 0;
    for (std::size_t i = intervals_.size(); i-- > 0 && intervals_[i].end_s > begin_s;)
      sum_s += std::max(
          0.0, std::min(end_s, intervals_[i].end_s) - std::max(begin_s, intervals_[i].begin_s));
    return sum_s;
  }

 private:
  std::vector<TimeSpan> intervals_;
};

class Run {
 public:
  /// @param computing when something computes, as an earlier run has found; null: always
  Run(const Program& program, const Plan& plan, const Rates& rates, bool copies_take_time,
      const Busy* computing = nullptr)
      : program_(program),
        plan_(plan),
        rates_(rates),
        copies_take_time_(copies_take_time),
        computing_(computing),
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
    computed_.merge();
    return std::move(result_);
  }

  /// When something computed, of all queues; after go().
  const Busy& computed() const { return computed_; }

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
        return copy(step, begin_s, rates_.d2h_s(bytes_of(step)), to_host_, from_host_);
      case Step::What::copy_in:
        return copy(step, begin_s, rates_.h2d_s(bytes_of(step)), from_host_, to_host_);
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
        begin_s + time_s + slowed_s(to_host_, rates_.d2h_slowdown) +
        slowed_s(from_host_, rates_.h2d_slowdown) +
        counted_.overlap(begin_s, begin_s + time_s) * (rates_.counted_slowdown - 1);
    computed_.add(begin_s, end_s);
    return end_s;
  }

  std::size_t bytes_of(const Step& copy) const {
    return moved_bytes(program_, plan_.places[copy.places[0]]);
  }

  double copy(const Step& step, double begin_s, double time_s, Busy& own, const Busy& other) {
    if (!copies_take_time_) return begin_s;
    const double overlap_s = other.overlap(begin_s, begin_s + time_s);
    const double end_s = begin_s + time_s + overlap_s * (rates_.duplex_slowdown() - 1);
    own.add(begin_s, end_s);
    if (execution::counts_rows(step)) counted_.add(begin_s, end_s);
    return end_s;
  }

  const Program& program_;
  const Plan& plan_;
  const Rates& rates_;
  bool copies_take_time_;
  const Busy* computing_;
  std::vector<double> free_s_;   ///< by queue
  std::vector<double> event_s_;  ///< by event: its latest record
  Busy to_host_, from_host_, counted_, computed_;
  double skipped_s_ = 0;
  Prediction result_;
};

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
  Run first(program, plan, rates, true);
  Prediction prediction = first.go();
  // What computes beside an exchange starts in part after it: the first run tells when.
  if (!rates.links_with_compute.empty())
    prediction = Run(program, plan, rates, true, &first.computed()).go();
  // The same steps with copies that take no time also slow nothing down: what is left is waiting.
  Rates unhindered = rates;
  unhindered.d2h_slowdown = unhindered.h2d_slowdown = {};
  unhindered.counted_slowdown = 1;
  const double waiting_s = Run(program, plan, unhindered, true).go().time_s;
  prediction.exposed_s = waiting_s - Run(program, plan, unhindered, false).go().time_s;
  return prediction;
}

}  // namespace stowage::offload
