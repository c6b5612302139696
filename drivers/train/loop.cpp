#include "drivers/train/loop.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "drivers/common/staging.hpp"
#include "execution/error.hpp"
#include "results/progress.hpp"

namespace stowage::drivers {

Loop::Loop(layers::Trainer& trainer, Data& data, const layers::Schedule& schedule,
           double weight_decay)
    : trainer_(trainer),
      data_(data),
      schedule_(schedule),
      weight_decay_(weight_decay),
      last_end_s_(results::steady_seconds()) {}

std::optional<StepReport> Loop::issue(std::int64_t step, Then then) {
  std::optional<StepReport> report;
  if (pending_ && !has_room_for_all(*pending_)) report = drain();
  Pending next = launch(step, then);
  if (pending_) report = read(*pending_, pending_->executor == next.executor ? 1 : 0);
  pending_ = next;
  return report;
}

Loop::Pending Loop::launch(std::int64_t step, Then then) {
  inputs::Loader& loader = *data_.train;
  const auto [recorded, executor] = trainer_.training(loader.global_documents(), expert_class_);
  Pending pending{.executor = &executor,
                  .recorded = &recorded,
                  .step = step + 1,
                  .then = then,
                  .expert_class = expert_class_,
                  .position = loader.position(),
                  .lr = schedule_.at(step)};
  const auto targets = static_cast<double>(loader.global_targets());
  pending.pairs = stage_tokens(loader, executor, recorded.shape, recorded.inputs);
  stage_values(executor, recorded.loss_scale, {targets > 0 ? 1.0 / targets : 0.0});
  stage_values(executor, recorded.schedule, {pending.lr, weight_decay_});
  std::memcpy(executor.stage(recorded.go_on).data(), &then, sizeof(then));
  executor.step();
  loader.advance();
  return pending;
}

execution::Executor& Loop::next() {
  return trainer_.training(data_.train->global_documents(), expert_class_).executor;
}

std::optional<StepReport> Loop::drain() {
  if (!pending_) return std::nullopt;
  while (!judge(*pending_, 0)) {
    ExpertReport so_far = pending_->experts;
    ++so_far.reruns;
    data_.train->seek(pending_->position);
    pending_ = launch(pending_->step - 1, pending_->then);
    pending_->experts = so_far;
  }
  const StepReport report = read(*pending_, 0);
  pending_.reset();
  return report;
}

bool Loop::has_room_for_all(const Pending& pending) const {
  return pending.expert_class == trainer_.plan().expert_classes() - 1;
}

bool Loop::judge(Pending& pending, int ago) {
  if (!pending.recorded->expert_rows) return true;
  const layers::TrainerPlan& plan = trainer_.plan();
  std::array<std::int32_t, 3> rows{};
  std::memcpy(rows.data(), pending.executor->result(pending.recorded->expert_rows, ago).data(),
              sizeof(rows));
  const auto [lacking, most, most_of_one] = rows;
  expert_class_ = plan.expert_class(most);
  const bool room = lacking == 0 || has_room_for_all(pending);
  if (!room) expert_class_ = std::max(expert_class_, pending.expert_class + 1);
  const layers::TrainingProgram& all = plan.training(plan.expert_classes() - 1).front()->recorded;
  const double balanced = static_cast<double>(all.expert_room) /
                          plan.options().sharing.ranks.group(parallel::Group::experts).size();
  const double of_one =
      static_cast<double>(all.expert_room) / static_cast<double>(plan.options().model.moe.experts);
  ExpertReport& report = pending.experts;
  report.capacity = static_cast<double>(pending.recorded->expert_room) / balanced;
  report.busiest_rank = most / balanced;
  report.busiest_expert = most_of_one / of_one;
  report.exchanged_bytes += pending.recorded->expert_bytes;
  return room;
}

StepReport Loop::read(Pending& pending, int ago) {
  StepReport report;
  report.step = pending.step;
  report.lr = pending.lr;
  report.pairs = pending.pairs;
  if (pending.experts.capacity == 0) (void)judge(pending, ago);
  report.experts = pending.experts;
  const std::vector<double> loss = read_values(*pending.executor, pending.recorded->loss, ago);
  report.loss = loss[1] > 0 ? loss[0] / loss[1] : 0;
  if (pending.recorded->router_losses) {
    const auto routers = read_values(*pending.executor, pending.recorded->router_losses, ago);
    report.aux_loss = routers[0];
    report.z_loss = routers[1];
  }
  report.grad_norm = read_values(*pending.executor, pending.recorded->grad_norm, ago)[0];
  std::int32_t ok = 0;
  std::memcpy(&ok, pending.executor->result(pending.recorded->step_ok, ago).data(), sizeof(ok));
  report.ok = ok != 0;
  report.stop = ok == layers::kStopAfter;
  report.save = ok == layers::kSaveAfter;
  const double end_s = pending.executor->end_time_s(ago);
  report.time_s = end_s - last_end_s_;
  last_end_s_ = end_s;
  return report;
}

Evaluation Loop::evaluate(std::int64_t batches) {
  STOWAGE_ASSERT(!pending_, "an evaluation is asked for while a step is under way");
  inputs::Loader& loader = *data_.held_out;
  loader.seek({loader.position().seed, 0, 0});
  const std::int64_t whole = loader.samples() / data_.global_batch;
  const std::int64_t count = batches > 0 ? std::min(batches, whole) : whole;
  double sum = 0;
  double hits = 0;
  double targets = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto [recorded, executor] = trainer_.evaluation(loader.global_documents());
    (void)stage_tokens(loader, executor, recorded.shape, recorded.inputs);
    executor.step();
    loader.advance();
    const std::vector<double> loss = read_values(executor, recorded.loss, 0);
    sum += loss[0];
    targets += loss[1];
    hits += read_values(executor, recorded.hits, 0)[0];
  }
  restart_clock();
  return {sum / targets, hits / targets};
}

void Loop::restart_clock() { last_end_s_ = results::steady_seconds(); }

}  // namespace stowage::drivers
