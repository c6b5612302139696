#include "forecast/plan/exposure.hpp"

#include <algorithm>

namespace stowage::forecast {
namespace {

using offload::merged;
using Span = offload::TimeSpan;

double total_s(const std::vector<Span>& spans) {
  double sum = 0;
  for (const Span& span : spans) sum += span.end_s - span.begin_s;
  return sum;
}

/// Time that both have. @param a, b merged
double common_s(const std::vector<Span>& a, const std::vector<Span>& b) {
  double sum = 0;
  for (std::size_t i = 0, k = 0; i < a.size() && k < b.size();) {
    sum += std::max(0.0, std::min(a[i].end_s, b[k].end_s) - std::max(a[i].begin_s, b[k].begin_s));
    if (a[i].end_s < b[k].end_s)
      ++i;
    else
      ++k;
  }
  return sum;
}

}  // namespace

std::map<std::string, Exposure> communication_exposure(
    const execution::Plan& plan, const std::vector<execution::OpTimer::Interval>& intervals) {
  std::vector<Span> compute;
  std::map<std::string, std::vector<Span>> groups;
  for (const execution::OpTimer::Interval& interval : intervals) {
    const execution::Step& step = plan.steps[interval.step];
    const execution::QueueInfo& queue = plan.queues[step.queue];
    const Span span{interval.begin_s, interval.end_s};
    if (queue.lane == execution::Lane::compute) compute.push_back(span);
    if (queue.lane != execution::Lane::comm) continue;
    groups[queue.name].push_back(span);
    groups[kAllGroups].push_back(span);
  }
  compute = merged(std::move(compute));
  std::map<std::string, Exposure> exposures;
  for (auto& [name, spans] : groups) {
    spans = merged(std::move(spans));
    const double busy_s = total_s(spans);
    exposures[name] = {busy_s, busy_s - common_s(spans, compute)};
  }
  return exposures;
}

std::map<std::string, Exposure> predicted_exposure(const execution::Plan& plan,
                                                   const offload::Prediction& prediction) {
  const auto interval = [&](int i) {
    const auto at = static_cast<std::size_t>(i);
    return execution::OpTimer::Interval{i, 0, prediction.begin_s[at], prediction.end_s[at]};
  };
  const auto of = [&](int begin, int end) {
    std::vector<execution::OpTimer::Interval> intervals;
    for (int i = begin; i < end; ++i)
      if (plan.steps[i].what != execution::Step::What::mark) intervals.push_back(interval(i));
    return communication_exposure(plan, intervals);
  };
  std::map<std::string, Exposure> sum = of(0, static_cast<int>(plan.steps.size()));
  for (const execution::StepRange& section : plan.sections) {
    if (section.repeat == 1) continue;
    for (const auto& [queue, exposure] : of(section.begin, section.end)) {
      sum[queue].busy_s += (section.repeat - 1) * exposure.busy_s;
      sum[queue].exposed_s += (section.repeat - 1) * exposure.exposed_s;
    }
  }
  return sum;
}

StepParts step_parts(const execution::Plan& plan,
                     const std::vector<execution::OpTimer::Interval>& intervals) {
  std::vector<Span> compute, communicates, any;
  for (const execution::OpTimer::Interval& interval : intervals) {
    const execution::Step& step = plan.steps[interval.step];
    const execution::Lane lane = plan.queues[step.queue].lane;
    const Span span{interval.begin_s, interval.end_s};
    any.push_back(span);
    if (lane == execution::Lane::compute) compute.push_back(span);
    if (lane == execution::Lane::compute || lane == execution::Lane::comm)
      communicates.push_back(span);
  }
  if (any.empty()) return {};
  any = merged(std::move(any));
  const double computes_s = total_s(merged(std::move(compute)));
  const double both_s = total_s(merged(std::move(communicates)));
  const double busy_s = total_s(any);
  return {.compute_s = computes_s,
          .exposed_communication_s = both_s - computes_s,
          .exposed_copies_s = busy_s - both_s,
          .idle_s = any.back().end_s - any.front().begin_s - busy_s};
}

}  // namespace stowage::forecast
