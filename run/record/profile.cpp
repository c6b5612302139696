#include "run/record/profile.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "execution/error.hpp"
#include "execution/op_kind.hpp"
#include "results/statistics.hpp"

namespace stowage::run {

using execution::OpTimer;

namespace {

constexpr double kLeastShare = 1e-3;  // of the step, to be worth a line of its own

double median(const std::vector<double>& values) { return results::summarize(values).median; }

/// The queue of a step. Graphs spread compute over several, which count as the first; each group of
/// ranks has one of its own.
const std::string& queue_name(const execution::Plan& plan, const execution::Step& step) {
  const execution::QueueInfo& queue = plan.queues[step.queue];
  return queue.lane == execution::Lane::compute ? plan.queues.front().name : queue.name;
}

std::string kind_of(const execution::Program& program, const execution::Step& step) {
  const std::string name = describe(program, step);
  if (step.what == execution::Step::What::rerun)
    return fmt::format("rerun of {}", execution::op_kind(program.ops()[step.op].name));
  return std::string(execution::op_kind(name));
}

/// Times by kind of one execution.
std::map<std::string, OpTotal> sum(const execution::Program& program, const execution::Plan& plan,
                                   const std::vector<OpTimer::Interval>& intervals) {
  std::map<std::string, OpTotal> totals;
  for (const OpTimer::Interval& interval : intervals) {
    const execution::Step& step = plan.steps[interval.step];
    const std::string& queue = queue_name(plan, step);
    const std::string kind = kind_of(program, step);
    OpTotal& total = totals[queue + "/" + kind];
    total.kind = kind;
    total.queue = queue;
    ++total.calls;
    if (step.op >= 0) {
      const execution::Op& op = program.ops()[step.op];
      total.cost = total.cost + op.cost;
      if (op.communication) total.collective = op.communication->kind;
    }
    if (total.time_s.empty()) total.time_s.push_back(0);
    total.time_s.back() += interval.time_s();
  }
  return totals;
}

}  // namespace

void Profile::begin(execution::Executor& executor) {
  std::unique_ptr<Watch>& watch = watches_[&executor];
  if (!watch) watch = std::make_unique<Watch>(backend_, executor);
  executor.add(watch->timer);
  executor.add(watch->counted);
  executor_ = &executor;
}

bool is_over_pairs(std::string_view kind) { return kind.starts_with("attn/core"); }

void Profile::end(double pairs) {
  Watch& watch = *watches_.at(executor_);
  executor_->remove(watch.timer);
  executor_->remove(watch.counted);
  last_ = watch.timer.intervals();
  counted_bytes_ = watch.counted.of_last_step();
  for (auto& [key, total] : sum(executor_->program(), executor_->plan(), last_)) {
    if (is_over_pairs(total.kind)) {
      total.cost.flops *= pairs;
      total.cost.idle_flops *= pairs;
    }
    OpTotal& all = totals_[key];
    std::vector<double> times = std::move(all.time_s);
    times.push_back(total.time_s.front());
    all = std::move(total);
    all.time_s = std::move(times);
  }
  for (const auto& [queue, exposure] : forecast::communication_exposure(executor_->plan(), last_)) {
    communication_[queue].busy_s.push_back(exposure.busy_s);
    communication_[queue].exposed_s.push_back(exposure.exposed_s);
  }
  times_.push_back(span_s());
}

double Profile::span_s() const {
  double first = last_.front().begin_s, last = last_.front().end_s;
  for (const OpTimer::Interval& interval : last_) {
    first = std::min(first, interval.begin_s);
    last = std::max(last, interval.end_s);
  }
  return last - first;
}

std::vector<OpTotal> Profile::totals() const {
  std::vector<OpTotal> all;
  for (const auto& [key, total] : totals_) all.push_back(total);
  std::sort(all.begin(), all.end(),
            [](const OpTotal& a, const OpTotal& b) { return median(a.time_s) > median(b.time_s); });
  return all;
}

std::string Profile::text() const {
  const double step_s = median(times_);
  std::string text = fmt::format("# where the time goes, median of {} steps timed op by op{}\n",
                                 times_.size(), ranks_ > 1 ? ", on rank 0" : "");
  text += fmt::format("#   {:<34} {:>9} {:>6} {:>10} {:>7} {:>9} {:>8}\n", "op", "queue", "calls",
                      "ms", "share", "TFLOP/s", "GB/s");
  std::map<std::string, double> busy_s;
  int others = 0;
  double others_s = 0;
  for (const OpTotal& total : totals()) {
    const double time_s = median(total.time_s);
    busy_s[total.queue] += time_s;
    if (time_s < kLeastShare * step_s) {
      ++others;
      others_s += time_s;
      continue;
    }
    text += fmt::format("#   {:<34} {:>9} {:>6} {:>10.3f} {:>5.1f} % {:>9.1f} {:>8.0f}\n",
                        total.kind, total.queue, total.calls, 1e3 * time_s, 100 * time_s / step_s,
                        total.cost.flops / time_s / 1e12, total.cost.bytes / time_s / 1e9);
  }
  if (others > 0)
    text += fmt::format("#   {:<34} {:>9} {:>6} {:>10.3f} {:>5.1f} %\n",
                        fmt::format("{} others", others), "", "", 1e3 * others_s,
                        100 * others_s / step_s);
  for (const auto& [queue, time_s] : busy_s)
    text += fmt::format("#   queue {:<10} busy {:>10.3f} of {:.3f} ms ({:.1f} %)\n", queue,
                        1e3 * time_s, 1e3 * step_s, 100 * time_s / step_s);
  text += communication_text();
  if (const auto moved = modules(); any_copies(moved))
    text += fmt::format("# copies of the last of them: compute waits {:.3f} ms for {:.3f} ms\n{}{}",
                        1e3 * exposed_s(moved), 1e3 * copying_s(moved), copies_heading(""),
                        copies_text("", moved));
  text.pop_back();  // the last end of line
  return text;
}

std::string Profile::communication_text() const {
  std::string text;
  for (const auto& [queue, times] : communication_) {
    const double busy_s = median(times.busy_s), exposed_s = median(times.exposed_s);
    text += fmt::format(
        "#   communication, {}: {:.3f} ms, nothing computes beside {:.3f} ms of it ({:.1f} %)\n",
        queue, 1e3 * busy_s, 1e3 * exposed_s, 100 * exposed_s / busy_s);
  }
  if (ranks_ > 1) text += "#   a collective's time includes its wait for the other ranks\n";
  return text;
}

void Profile::add_to(results::ResultSet& set) const {
  for (const OpTotal& total : totals()) {
    results::Samples samples{.path = "ops/" + total.kind,
                             .time_s = total.time_s,
                             .attributes = {{"queue", total.queue},
                                            {"calls", total.calls},
                                            {"flops", total.cost.flops},
                                            {"bytes", total.cost.bytes},
                                            {"idle_flops", total.cost.idle_flops},
                                            {"apart_bytes", total.cost.apart_bytes},
                                            {"more_kernels", total.cost.more_kernels}}};
    if (!total.collective.empty()) samples.attributes.push_back({"collective", total.collective});
    set.add(std::move(samples));
  }
  set.add(results::Samples{.path = "train/timed_step", .time_s = times_});
  for (const auto& [queue, times] : communication_) {
    const std::string path = "communication/" + queue;
    set.add(results::Samples{.path = path + "/busy", .time_s = times.busy_s});
    set.add(results::Samples{.path = path + "/exposed", .time_s = times.exposed_s});
    const results::Summary busy = results::summarize(times.busy_s);
    const results::Summary exposed = results::summarize(times.exposed_s);
    set.add(results::metric(path + "/busy", busy));
    set.add(results::metric(path + "/exposed", exposed));
    set.add(results::metric(path + "/overlap", 1 - exposed.median / busy.median));
  }
  const std::vector<offload::ModuleSummary> moved = modules();
  for (results::ModuleCopies& row : module_rows("deck", moved, true)) set.add(std::move(row));
  if (!any_copies(moved)) return;
  double bytes = 0;
  for (const offload::ModuleSummary& module : moved) bytes += static_cast<double>(module.offloaded);
  set.add(results::metric("offload/exposed_copy", exposed_s(moved)));
  set.add(results::metric("offload/bytes", bytes));
  set.add(results::metric("offload/bandwidth", 2 * bytes / copying_s(moved)));
}

std::vector<offload::ModuleSummary> Profile::modules() const {
  return timed_modules(executor_->program(), executor_->plan(), last_, counted_bytes_);
}

results::Trace Profile::trace(int rank, double offset_s) const {
  const execution::Program& program = executor_->program();
  const execution::Plan& plan = executor_->plan();
  results::Trace trace;
  for (std::size_t q = 0; q < plan.queues.size(); ++q)
    trace.name_queue(rank, static_cast<int>(q), plan.queues[q].name);
  for (const OpTimer::Interval& i : last_) {
    const execution::Step& step = plan.steps[i.step];
    trace.add({rank, step.queue, describe(program, step), i.begin_s - offset_s, i.time_s()});
  }
  return trace;
}

}  // namespace stowage::run
