#include "forecast/pipeline/planned_pipeline.hpp"

#include <algorithm>
#include <limits>
#include <set>
#include <string>

#include "execution/error.hpp"

namespace stowage::forecast {
namespace {

using execution::Step;

layers::PipelineShape shape_of(const PipelinePlan& pipeline) {
  return {static_cast<int>(pipeline.timeline.ranks.size()), pipeline.virtual_stages};
}

/// The events that messages between stages record when they are through.
std::set<int> message_events(const execution::Program& program, const execution::Plan& plan) {
  const std::string group(parallel::name(parallel::Group::pipeline));
  std::set<int> events;
  for (const Step& step : plan.steps)
    if (step.what == Step::What::run && step.records >= 0) {
      const auto& communication = program.ops()[step.op].communication;
      if (communication && communication->group == group) events.insert(step.records);
    }
  return events;
}

/// A sum of times and how many they are.
struct Mean {
  double sum_s = 0;
  int count = 0;

  void add(double time_s) { sum_s += time_s, ++count; }
  double get(double otherwise) const { return count > 0 ? sum_s / count : otherwise; }
};

}  // namespace

offload::Rates alone(offload::Rates rates) {
  const std::string group(parallel::name(parallel::Group::pipeline));
  for (offload::Rates::Links* links : {&rates.links, &rates.links_with_compute}) {
    std::erase_if(*links, [&](const auto& one) { return one.first.starts_with(group + " "); });
    if (links == &rates.links || !links->empty())
      (*links)[group] = {0, std::numeric_limits<double>::infinity()};
  }
  return rates;
}

std::vector<Timeline::Span> step_spans(const offload::Prediction& prediction) {
  std::vector<Timeline::Span> spans;
  for (std::size_t i = 0; i < prediction.begin_s.size(); ++i)
    spans.push_back({prediction.begin_s[i], prediction.end_s[i]});
  return spans;
}

std::vector<PlannedPass> planned_passes(const execution::Program& program,
                                        const execution::Plan& plan,
                                        const std::vector<Timeline::Span>& steps) {
  const std::set<int> messages = message_events(program, plan);
  std::vector<PlannedPass> passes;
  PlannedPass next;          // as far as it is known before its own first op
  double idle_since_s = -1;  // the end of the step before
  bool given = false;        // what comes next waits for a message
  int last = -1;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    if (step.queue != 0) continue;
    given |= std::ranges::any_of(step.waits, [&](int event) { return messages.contains(event); });
    const bool rerun = step.what == Step::What::rerun;
    if ((step.what != Step::What::run && !rerun) || steps[i].begin_s < 0) continue;
    const auto [begin_s, end_s] = steps[i];
    const double gap_s = given && idle_since_s >= 0 ? std::max(0.0, begin_s - idle_since_s) : 0;
    given = false;
    idle_since_s = end_s;
    const bool first_again = rerun && next.begin_s < 0;
    if (first_again) next.begin_s = begin_s;
    if (!first_again && next.begin_s >= 0) next.waits_s += gap_s;
    if (rerun) continue;
    const int scope = layers::enclosing(program, program.ops()[step.op], "microbatch");
    if (scope >= 0 && scope != last) {
      last = scope;
      passes.push_back({next.begin_s < 0 ? begin_s : next.begin_s, end_s, next.waits_s});
    } else if (scope >= 0) {
      passes.back().end_s = end_s;
      passes.back().waits_s += next.begin_s < 0 ? gap_s : next.waits_s;
    }
    next = {};
  }
  return passes;
}

std::vector<layers::PassTimes> planned_times(const PipelinePlan& pipeline, int rank,
                                             const std::vector<PlannedPass>& passes) {
  const layers::PipelineShape shape = shape_of(pipeline);
  std::vector<Mean> forward(static_cast<std::size_t>(shape.virtual_stages)), backward = forward,
                                                                             weights = forward;
  std::size_t next = 0;
  for (const layers::Pass& pass : pipeline.timeline.ranks[rank].passes) {
    if (pass.kind == layers::Pass::Kind::exchange) continue;
    STOWAGE_ASSERT(next < passes.size(), "a plan of {} passes", passes.size());
    const double time_s = passes[next++].time_s();
    if (pass.kind == layers::Pass::Kind::forward) forward[pass.chunk].add(time_s);
    if (pass.kind == layers::Pass::Kind::weights) weights[pass.chunk].add(time_s);
    if (pass.kind != layers::Pass::Kind::backward) continue;
    const layers::PassTimes& without = pipeline.times[shape.stage(rank, pass.chunk)];
    const double both_s = without.backward_s + without.weights_s;
    const bool weights_too = !pass.weights_later && both_s > 0;
    const double weights_s = weights_too ? time_s * without.weights_s / both_s : 0;
    backward[pass.chunk].add(time_s - weights_s);
    if (weights_too) weights[pass.chunk].add(weights_s);
  }
  STOWAGE_ASSERT(next == passes.size(), "{} passes of a rank, {} of its plan", next, passes.size());
  std::vector<layers::PassTimes> times;
  for (int chunk = 0; chunk < shape.virtual_stages; ++chunk) {
    const layers::PassTimes& without = pipeline.times[shape.stage(rank, chunk)];
    times.push_back({forward[chunk].get(without.forward_s), backward[chunk].get(without.backward_s),
                     weights[chunk].get(without.weights_s)});
  }
  return times;
}

std::vector<layers::PassTimes> scale_to_measured(const PipelinePlan& pipeline, int rank,
                                                 const std::vector<layers::PassTimes>& own) {
  const layers::PipelineShape shape = shape_of(pipeline);
  layers::PassTimes planned, without;
  for (int chunk = 0; chunk < shape.virtual_stages; ++chunk) {
    planned += own[chunk];
    without += pipeline.times[shape.stage(rank, chunk)];
  }
  const auto scaled = [](double time_s, double is_s, double was_s) {
    return was_s > 0 ? time_s * is_s / was_s : time_s;
  };
  std::vector<layers::PassTimes> all;
  for (const layers::PassTimes& stage : pipeline.times)
    all.push_back({scaled(stage.forward_s, planned.forward_s, without.forward_s),
                   scaled(stage.backward_s, planned.backward_s, without.backward_s),
                   scaled(stage.weights_s, planned.weights_s, without.weights_s)});
  for (int chunk = 0; chunk < shape.virtual_stages; ++chunk)
    all[shape.stage(rank, chunk)] = own[chunk];
  return all;
}

Timeline with_times(const PipelinePlan& pipeline, const std::vector<layers::PassTimes>& times) {
  std::vector<layers::RankPasses> passes;
  for (const Timeline::Rank& rank : pipeline.timeline.ranks)
    passes.push_back({{"pipeline", 1, rank.passes}});
  return follow(passes, times, pipeline.exchange_s);
}

}  // namespace stowage::forecast
