#include "forecast/pipeline/pipeline_plan.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "layers/schedule/pipeline.hpp"
#include "layers/state/state.hpp"

namespace stowage::forecast {
namespace {

/// A schedule, and the stages of each rank that it is for.
struct Candidate {
  layers::PipelineSchedule schedule = layers::PipelineSchedule::one_forward_one_backward;
  int virtual_stages = 1;
};

std::vector<Candidate> candidates(const PipelineInputs& options) {
  if (options.schedule != layers::PipelineSchedule::automatic)
    return {{options.schedule, options.model.virtual_stages}};
  std::vector<Candidate> all{{layers::PipelineSchedule::one_forward_one_backward, 1},
                             {layers::PipelineSchedule::zero_bubble, 1}};
  const int ranks = options.ranks.shape[parallel::Axis::pipeline];
  const bool in_groups = options.step.microbatches % ranks == 0;
  if (const int stages = options.model.virtual_stages; stages > 1 && in_groups)
    all.push_back({layers::PipelineSchedule::interleaved, stages});
  const auto cuts = static_cast<int>(std::ranges::count(options.model.pattern, '|'));
  std::erase_if(all, [&](const Candidate& c) {
    const int stages = ranks * c.virtual_stages;
    return cuts > 0 ? cuts + 1 != stages : c.virtual_stages > 1 && options.model.layers() < stages;
  });
  if (all.empty())  // for the reason that dividing the model gives
    all.push_back({layers::PipelineSchedule::one_forward_one_backward, 1});
  return all;
}

/// What one rank of each stage would be without the others.
parallel::Ranks one_stage(const parallel::Ranks& ranks) {
  parallel::GridShape shape = ranks.shape;
  for (const auto axis : {parallel::Axis::pipeline, parallel::Axis::data}) shape.extent[axis] = 1;
  return parallel::planned_ranks(shape, 0);
}

double exchange_s(const PipelineInputs& options) {
  const offload::Link& link =
      options.rates.link_of(std::string(name(parallel::Group::pipeline)), "exchange");
  const parallel::GridShape& shape = options.ranks.shape;
  const int sharers = shape[parallel::Axis::tensor] * shape[parallel::Axis::context];
  const std::int64_t tokens = options.step.tokens / sharers;
  const double bytes = static_cast<double>(tokens) * static_cast<double>(options.model.width) *
                       static_cast<double>(size_bytes(options.precision.storage));
  return link.time_s(bytes);
}

/// One microbatch of all layers, for what its tensors take.
class OneMicrobatch {
 public:
  explicit OneMicrobatch(const PipelineInputs& options)
      : model_(options.model, options.precision, 1, one_stage(options.ranks)),
        layout_(lay_out_state(model_.parameters(), model_.states(), options.precision, {})),
        program_(one_microbatch(model_, options.step, layout_)) {}

  const layers::Model& model() const { return model_; }
  const execution::Program& program() const { return program_; }

 private:
  layers::Model model_;
  execution::PersistentLayout layout_;
  execution::Program program_;
};

/// Memory limit for pipeline cuts, without microbatches in flight; unlimited without a budget.
DeviceRoom device_room(const PipelineInputs& options, const OneMicrobatch& microbatch) {
  const offload::Policy& policy = options.policy;
  if (policy.kind != offload::Policy::Kind::automatic || policy.device_budget_bytes <= 0) return {};
  const offload::Rates& rates = options.rates;
  return {static_cast<double>(policy.device_budget_bytes),
          rates.duplex_slowdown() / std::min(rates.d2h_bytes_per_s, rates.h2d_bytes_per_s),
          count_bytes(microbatch.model(), microbatch.program(), policy, options.state, options.zero,
                      options.ranks),
          {}};
}

double over_bytes(const DeviceRoom& room, layers::PipelineShape shape,
                  const std::vector<layers::Stage>& stages) {
  double over = 0;
  for (int rank = 0; room.budget_bytes > 0 && rank < shape.ranks; ++rank) {
    std::vector<PartBytes> own;
    for (int chunk = 0; chunk < shape.virtual_stages; ++chunk)
      own.push_back(stage_bytes(stages[shape.stage(rank, chunk)], room.parts));
    over += overflow(room, rank, own).over_bytes;
  }
  return over;
}

/// Cuts a plan's pattern, unless that is done, and says why there.
void cut(PipelinePlan& pipeline, layers::PipelineShape shape, const PartTimes& times,
         const DeviceRoom& room) {
  pipeline.cut_for = "by hand";
  if (pipeline.pattern.find('|') != std::string::npos) return;
  const std::string by_time = balanced_cuts(pipeline.pattern, shape, times);
  pipeline.cut_for = "for even times";
  pipeline.pattern =
      room.budget_bytes > 0 ? balanced_cuts(pipeline.pattern, shape, times, room) : by_time;
  if (pipeline.pattern != by_time)
    pipeline.cut_for += fmt::format(" within offload.device_budget_bytes, not {}", by_time);
}

}  // namespace

PipelinePlan choose_pipeline(const PipelineInputs& options) {
  const int ranks = options.ranks.shape[parallel::Axis::pipeline];
  const int microbatches = options.step.microbatches;
  const PartTimes parts = predict_parts(options.model, options.precision, options.step,
                                        one_stage(options.ranks), options.rates)
                              .times;
  const OneMicrobatch microbatch(options);
  DeviceRoom room = device_room(options, microbatch);
  PipelinePlan best;
  for (const auto& [schedule, virtual_stages] : candidates(options)) {
    const layers::PipelineShape shape{ranks, virtual_stages};
    PipelinePlan pipeline;
    pipeline.pattern = options.model.pattern;
    pipeline.virtual_stages = virtual_stages;
    pipeline.schedule = schedule;
    pipeline.exchange_s = exchange_s(options);
    if (room.budget_bytes > 0)
      room.in_flight = in_flight(shape, train_in_pipeline(shape, microbatches, schedule));
    cut(pipeline, shape, parts, room);
    const std::vector<layers::Stage> stages = layers::divide(pipeline.pattern, shape.stages());
    std::vector<int> delayed;
    if (schedule == layers::PipelineSchedule::zero_bubble) {
      pipeline.delayed = delay_weights(
          held_bytes(microbatch.program(), stages, options.model.layers(), options.policy),
          microbatches, options.zero_bubble_bytes);
      delayed = pipeline.delayed->microbatches;
    }
    pipeline.times = stage_times(stages, parts);
    const std::vector<layers::RankPasses> passes =
        train_in_pipeline(shape, microbatches, schedule, pipeline.times, delayed);
    if (room.budget_bytes > 0) room.in_flight = in_flight(shape, passes);
    pipeline.over_bytes = over_bytes(room, shape, stages);
    pipeline.timeline = follow(passes, pipeline.times, pipeline.exchange_s);
    if (best.timeline.ranks.empty() || std::pair(pipeline.over_bytes, pipeline.timeline.time_s) <
                                           std::pair(best.over_bytes, best.timeline.time_s))
      best = std::move(pipeline);
  }
  return best;
}

}  // namespace stowage::forecast
