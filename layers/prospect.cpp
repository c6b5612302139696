#include "layers/prospect.hpp"

#include "layers/pipeline.hpp"

namespace stowage::layers {
namespace {

Timeline follow(int stages, int microbatches, PipelineSchedule schedule,
                const std::vector<PassTimes>& times, double exchange_s) {
  std::vector<Turns> turns;
  for (int stage = 0; stage < stages; ++stage)
    turns.push_back(train_in_pipeline({stage, stages}, microbatches, schedule));
  return follow(turns, times, exchange_s);
}

/// What one rank of each stage would be without the others.
parallel::Ranks one_stage(const parallel::Ranks& ranks) {
  parallel::GridShape shape = ranks.shape;
  for (const auto axis : {parallel::Axis::pipeline, parallel::Axis::data}) shape.extent[axis] = 1;
  return parallel::planned_ranks(shape, 0);
}

double exchange_s(const ProspectOptions& options) {
  const auto found = options.rates.links.find(std::string(name(parallel::Group::pipeline)));
  const offload::Link& link =
      found == options.rates.links.end() ? options.rates.link : found->second;
  const parallel::GridShape& shape = options.ranks.shape;
  const int sharers = shape[parallel::Axis::tensor] * shape[parallel::Axis::context];
  const double bytes = static_cast<double>(options.step.tokens / sharers) *
                       static_cast<double>(options.model.width) *
                       static_cast<double>(size_bytes(options.precision.storage));
  return link.latency_s + bytes / link.bytes_per_s;
}

}  // namespace

Prospect foresee(const ProspectOptions& options) {
  const int stages = options.ranks.shape[parallel::Axis::pipeline];
  const PartTimes parts = predict_parts(options.model, options.precision, options.step,
                                        one_stage(options.ranks), options.rates);
  Prospect prospect{options.model.pattern, options.schedule, {}};
  if (prospect.pattern.find('|') == std::string::npos)
    prospect.pattern = balanced_cuts(prospect.pattern, stages, parts);
  const std::vector<PassTimes> times = stage_times(divide(prospect.pattern, stages), parts);
  const auto with = [&](PipelineSchedule schedule) {
    return follow(stages, options.step.microbatches, schedule, times, exchange_s(options));
  };
  if (options.schedule != PipelineSchedule::automatic) {
    prospect.timeline = with(options.schedule);
    return prospect;
  }
  for (const auto schedule :
       {PipelineSchedule::one_forward_one_backward, PipelineSchedule::zero_bubble})
    if (Timeline timeline = with(schedule);
        prospect.timeline.stages.empty() || timeline.time_s < prospect.timeline.time_s) {
      prospect.schedule = schedule;
      prospect.timeline = std::move(timeline);
    }
  return prospect;
}

}  // namespace stowage::layers
