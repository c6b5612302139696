#include "drivers/bench_scaling/stage_times.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "run/machine/agreement.hpp"

namespace stowage::drivers {
namespace {

using layers::PassTimes;
using parallel::Axis;

/// What the main queue runs outside of passes.
double rest_s(const execution::Program& program, const execution::Plan& plan,
              const std::vector<execution::OpTimer::Interval>& intervals) {
  double sum = 0;
  for (const execution::OpTimer::Interval& interval : intervals) {
    const execution::Step& step = plan.steps[interval.step];
    if (step.queue != 0 || step.what != execution::Step::What::run) continue;
    if (layers::enclosing(program, program.ops()[step.op], "microbatch") < 0)
      sum += interval.time_s();
  }
  return sum;
}

}  // namespace

void StageTimes::add(const forecast::TrainerPlan& plan, const execution::Executor& executed,
                     const std::vector<execution::OpTimer::Interval>& intervals) {
  const auto& pipeline = plan.expected().pipeline;
  if (!pipeline) return;
  const execution::Program& program = executed.program();
  std::vector<forecast::Timeline::Span> spans(executed.plan().steps.size());
  for (const execution::OpTimer::Interval& interval : intervals)
    spans[interval.step] = {interval.begin_s, interval.end_s};
  const std::vector<PassTimes> times =
      forecast::planned_times(*pipeline, plan.options().sharing.ranks.coordinates[Axis::pipeline],
                              forecast::planned_passes(program, executed.plan(), spans));
  sums_.resize(times.size());
  for (std::size_t chunk = 0; chunk < times.size(); ++chunk) sums_[chunk] += times[chunk];
  rest_s_ += rest_s(program, executed.plan(), intervals);
  ++steps_;
}

results::Fields StageTimes::fields(const forecast::TrainerPlan& plan,
                                   const parallel::Communicator& ranks) const {
  const auto& expected = plan.expected().pipeline;
  if (!expected) return {};
  std::vector<double> own{rest_s_ / steps_};
  for (const PassTimes& sum : sums_)
    for (const double sum_s : {sum.forward_s, sum.backward_s, sum.weights_s})
      own.push_back(sum_s / steps_);
  const std::vector<double> all = run::by_rank(ranks, own);
  if (ranks.rank() != 0) return {};
  const parallel::GridShape& grid = plan.options().sharing.ranks.shape;
  const layers::PipelineShape shape{grid[Axis::pipeline], expected->virtual_stages};
  std::vector<PassTimes> times(static_cast<std::size_t>(shape.stages()));
  results::Fields fields;
  fields.push_back({"schedule", std::string(name(expected->schedule))});
  fields.push_back({"microbatches", std::int64_t{plan.options().step.microbatches}});
  fields.push_back({"virtual_stages", std::int64_t{shape.virtual_stages}});
  double most_rest_s = 0;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    parallel::PerAxis place;
    place[Axis::pipeline] = rank;
    const int first = parallel::rank_at(grid, place);
    const auto number = [&](std::int64_t index) {
      return all[static_cast<std::size_t>(index * ranks.size() + first)];
    };
    fields.push_back({fmt::format("rank_{}_rest_s", rank), number(0)});
    most_rest_s = std::max(most_rest_s, number(0));
    for (int chunk = 0; chunk < shape.virtual_stages; ++chunk) {
      const int stage = shape.stage(rank, chunk), at = 1 + 3 * chunk;
      times[stage] = {number(at), number(at + 1), number(at + 2)};
      fields.push_back({fmt::format("stage_{}_forward_s", stage), times[stage].forward_s});
      fields.push_back({fmt::format("stage_{}_backward_s", stage), times[stage].backward_s});
      fields.push_back({fmt::format("stage_{}_weights_s", stage), times[stage].weights_s});
    }
  }
  forecast::PipelinePlan silent = *expected;
  silent.exchange_s = 0;
  fields.push_back({"schedule_time_s", forecast::with_times(silent, times).time_s + most_rest_s});
  return fields;
}

}  // namespace stowage::drivers
