#include "layers/prospect.hpp"

#include <algorithm>

#include "layers/pipeline.hpp"

namespace stowage::layers {
namespace {

/// A schedule, and the stages of each rank that it is for.
struct Candidate {
  PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward;
  int virtual_stages = 1;
};

std::vector<Candidate> candidates(const ProspectOptions& options) {
  if (options.schedule != PipelineSchedule::automatic)
    return {{options.schedule, options.model.virtual_stages}};
  std::vector<Candidate> all{{PipelineSchedule::one_forward_one_backward, 1},
                             {PipelineSchedule::zero_bubble, 1}};
  const int ranks = options.ranks.shape[parallel::Axis::pipeline];
  const bool in_groups = options.step.microbatches % ranks == 0;
  if (const int stages = options.model.virtual_stages; stages > 1 && in_groups)
    all.push_back({PipelineSchedule::interleaved, stages});
  const auto cuts = static_cast<int>(std::ranges::count(options.model.pattern, '|'));
  std::erase_if(all, [&](const Candidate& c) {
    const int stages = ranks * c.virtual_stages;
    return cuts > 0 ? cuts + 1 != stages : c.virtual_stages > 1 && options.model.layers() < stages;
  });
  if (all.empty())  // for the reason that dividing the model gives
    all.push_back({PipelineSchedule::one_forward_one_backward, 1});
  return all;
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
  const int ranks = options.ranks.shape[parallel::Axis::pipeline];
  const PartTimes parts = predict_parts(options.model, options.precision, options.step,
                                        one_stage(options.ranks), options.rates);
  Prospect best;
  for (const auto& [schedule, virtual_stages] : candidates(options)) {
    const PipelineShape shape{ranks, virtual_stages};
    Prospect prospect{options.model.pattern, virtual_stages, schedule, {}, {}};
    if (prospect.pattern.find('|') == std::string::npos)
      prospect.pattern = balanced_cuts(prospect.pattern, shape, parts);
    prospect.times = stage_times(divide(prospect.pattern, shape.stages()), parts);
    prospect.timeline =
        follow(train_in_pipeline(shape, options.step.microbatches, schedule, prospect.times),
               prospect.times, exchange_s(options));
    if (best.timeline.ranks.empty() || prospect.timeline.time_s < best.timeline.time_s)
      best = std::move(prospect);
  }
  return best;
}

}  // namespace stowage::layers
