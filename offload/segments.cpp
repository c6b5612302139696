#include "offload/segments.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "offload/bins.hpp"
#include "offload/carried.hpp"

namespace stowage::offload {
namespace {

using execution::Lane;
using execution::Plan;
using execution::QueueInfo;
using execution::Segment;
using execution::Step;
using execution::StepRange;

/// Writes the steps of a plan anew, bin by bin, with the marks that graphs need.
class Writer {
 public:
  Writer(Plan& plan, const GraphOptions& options)
      : plan_(plan), options_(options), old_(std::move(plan.steps)) {
    plan_.steps.clear();
  }

  void run(const Bins& bins) {
    std::vector<int> order(old_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return bins.of[a] < bins.of[b]; });
    section_of_ = sections();
    lengths_.assign(plan_.sections.size(), 0);
    for (std::size_t i = 0; i < order.size();) {
      const int bin = bins.of[order[i]];
      std::size_t end = i;
      while (end < order.size() && bins.of[order[end]] == bin) ++end;
      const std::vector<int> steps(order.begin() + static_cast<std::ptrdiff_t>(i),
                                   order.begin() + static_cast<std::ptrdiff_t>(end));
      if (Bins::is_graph(bin))
        write_graph(steps, bins.graphs[bin / 2]);
      else
        for (const int step : steps) write(take(step), section(step));
      i = end;
    }
    close_sections();
  }

 private:
  std::vector<int> sections() const {
    std::vector<int> of(old_.size(), 0);
    for (std::size_t s = 0; s < plan_.sections.size(); ++s)
      std::fill(of.begin() + plan_.sections[s].begin, of.begin() + plan_.sections[s].end,
                static_cast<int>(s));
    return of;
  }
  int section(int step) const { return section_of_[step]; }
  Step take(int step) { return std::move(old_[step]); }

  void write(Step step, int section) {
    plan_.steps.push_back(std::move(step));
    ++lengths_[section];
  }

  bool is_compute(const Step& step) const { return plan_.queues[step.queue].lane == Lane::compute; }

  void write_graph(const std::vector<int>& steps, const std::string& name) {
    const bool forks =
        std::any_of(steps.begin(), steps.end(), [&](int i) { return !is_compute(old_[i]); });
    Segment segment;
    segment.name = name;
    segment.queue = forks ? next_replay_queue() : 0;
    segment.begin = static_cast<int>(plan_.steps.size());
    if (forks) {
      write_forked(steps, segment.queue);
    } else {
      for (const int step : steps) write(take(step), section(step));
    }
    segment.end = static_cast<int>(plan_.steps.size());
    plan_.segments.push_back(std::move(segment));
  }

  /// Compute steps run on the queue that launches; the others between a fork and a join.
  void write_forked(const std::vector<int>& steps, int origin) {
    Step fork;
    fork.what = Step::What::mark;
    fork.queue = origin;
    fork.records = plan_.events++;
    Step join;
    join.what = Step::What::mark;
    join.queue = origin;
    std::vector<int> last(plan_.queues.size(), -1);  // by queue: index in the new order
    write(fork, section(steps.front()));
    for (const int index : steps) {
      Step step = take(index);
      if (is_compute(step)) {
        step.queue = origin;
      } else {
        int& latest = last[step.queue];
        if (latest < 0) step.waits.push_back(fork.records);
        latest = static_cast<int>(plan_.steps.size());
      }
      write(std::move(step), section(index));
    }
    for (const int index : last) {
      if (index < 0) continue;
      Step& step = plan_.steps[index];
      if (step.records < 0) step.records = plan_.events++;
      join.waits.push_back(step.records);
    }
    write(std::move(join), section(steps.back()));
  }

  /// Graphs with a tail take turns.
  int next_replay_queue() {
    if (options_.replay_queues == 0 || options_.mode == GraphOptions::Mode::step) return 0;
    const int turn = turns_++ % options_.replay_queues;
    const std::string name = fmt::format("replay{}", turn + 1);
    const auto found = std::find_if(plan_.queues.begin(), plan_.queues.end(),
                                    [&](const QueueInfo& queue) { return queue.name == name; });
    if (found != plan_.queues.end()) return static_cast<int>(found - plan_.queues.begin());
    plan_.queues.push_back({name, Lane::compute});
    return static_cast<int>(plan_.queues.size()) - 1;
  }

  /// A replay queue is forked and joined like any other: by its first and last step outside.
  void close_sections() {
    int begin = 0;
    for (std::size_t s = 0; s < plan_.sections.size(); ++s) {
      plan_.sections[s].begin = begin;
      plan_.sections[s].end = begin += lengths_[s];
    }
    std::vector<Step> ends;
    for (std::size_t q = 1; q < plan_.queues.size(); ++q)
      if (std::any_of(plan_.segments.begin(), plan_.segments.end(),
                      [&](const Segment& s) { return s.queue == static_cast<int>(q); })) {
        Step end;
        end.what = Step::What::mark;
        end.queue = static_cast<int>(q);
        ends.push_back(std::move(end));
      }
    const int count = static_cast<int>(ends.size());
    plan_.steps.insert(plan_.steps.begin(), ends.begin(), ends.end());
    plan_.steps.insert(plan_.steps.end(), ends.begin(), ends.end());
    for (StepRange& range : plan_.sections) {
      range.begin += count;
      range.end += count;
    }
    plan_.sections.front().begin = 0;
    plan_.sections.back().end += count;
    for (Segment& segment : plan_.segments) {
      segment.begin += count;
      segment.end += count;
    }
  }

  Plan& plan_;
  const GraphOptions& options_;
  std::vector<Step> old_;
  std::vector<int> section_of_;  ///< by old step
  std::vector<int> lengths_;     ///< by section: steps written
  int turns_ = 0;
};

}  // namespace

void choose_segments(const execution::Program& program, Plan& plan, const GraphOptions& options) {
  if (options.mode == GraphOptions::Mode::off) return;
  std::vector<Step> carried = take_carried(plan);
  const Bins bins = sort_into_bins(program, plan, options);
  Writer(plan, options).run(bins);
  put_back(plan, std::move(carried));
}

}  // namespace stowage::offload
