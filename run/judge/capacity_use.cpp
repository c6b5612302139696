#include "run/judge/capacity_use.hpp"

#include <fmt/core.h>

#include <vector>

#include "results/metric.hpp"
#include "results/statistics.hpp"

namespace stowage::run {

CapacityUse::CapacityUse(results::ResultSet& set, const forecast::TrainerPlan& plan)
    : set_(set),
      plan_(plan),
      series_(set.series(
          "packing", "step",
          {{"capacity", "1", "documents that a microbatch of the step's program has room for"},
           {"op_by_op", "1", "1: that is more than any graph has"},
           {"passed_batches", "1", "batches before the step's own without a counted target"},
           {"tokens", "1", "of documents in the step, without padding, on all ranks"}})) {}

void CapacityUse::add(const StepReport& report) {
  ++steps_[report.capacity];
  series_.append(report.step, {static_cast<double>(report.capacity), op_by_op(report) ? 1.0 : 0.0,
                               static_cast<double>(report.passed_batches), report.tokens});
}

std::string CapacityUse::text() const {
  if (plan_.options().capacities.size() == 1) return {};
  std::string text;
  for (const auto& [capacity, steps] : steps_) {
    const char* space = text.empty() ? "documents " : ", ";
    text += plan_.beyond_graphs(capacity) ? fmt::format("{}op by op: {}", space, steps)
                                          : fmt::format("{}{}: {}", space, capacity, steps);
  }
  return text;
}

void CapacityUse::add_metrics(const History& history) {
  double op_by_op = 0, passed = 0;
  for (const auto& [capacity, steps] : steps_)
    if (plan_.beyond_graphs(capacity)) op_by_op += steps;
  for (const StepReport& report : history.steps)
    passed += static_cast<double>(report.passed_batches);
  set_.add(results::metric("packing/op_by_op_steps", op_by_op));
  set_.add(results::metric("packing/passed_batches", passed));
  if (plan_.options().capacities.size() == 1) return;
  std::map<std::int64_t, std::vector<double>> times;
  std::map<std::int64_t, double> tokens_of_all;
  for (const StepReport& report : timed_steps(history)) {
    times[report.capacity].push_back(report.time_s);
    tokens_of_all[report.capacity] += report.tokens;
  }
  for (const auto& [capacity, steps] : steps_) {
    const std::string path = fmt::format("packing/{}", capacity);
    set_.add(results::metric(path + "/steps", static_cast<double>(steps)));
    if (!times.contains(capacity)) continue;
    const double tokens = tokens_of_all[capacity] / static_cast<double>(times[capacity].size());
    const results::Summary summary = results::summarize(times[capacity]);
    set_.add(results::metric(path + "/step_time", summary));
    set_.add(results::rate_metric(path + "/tokens_per_s", tokens, summary));
    set_.add(results::Samples{.path = path + "/step_time",
                              .time_s = times[capacity],
                              .attributes = {{"tokens", tokens}}});
  }
}

}  // namespace stowage::run
