#include "drivers/train/loop.hpp"

#include <algorithm>
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
  inputs::Loader& loader = *data_.train;
  const auto [recorded, executor] = trainer_.training(loader.global_documents());
  const double lr = schedule_.at(step);
  const auto targets = static_cast<double>(loader.global_targets());
  const double pairs = stage_tokens(loader, executor, recorded.shape, recorded.inputs);
  stage_values(executor, recorded.loss_scale, {targets > 0 ? 1.0 / targets : 0.0});
  stage_values(executor, recorded.schedule, {lr, weight_decay_});
  std::memcpy(executor.stage(recorded.go_on).data(), &then, sizeof(then));
  executor.step();
  loader.advance();
  std::optional<StepReport> report;
  if (pending_) report = read(*pending_, pending_->executor == &executor ? 1 : 0);
  pending_ = Pending{&executor, &recorded, step + 1, lr, pairs};
  return report;
}

execution::Executor& Loop::next() {
  return trainer_.training(data_.train->global_documents()).executor;
}

std::optional<StepReport> Loop::drain() {
  if (!pending_) return std::nullopt;
  const StepReport report = read(*pending_, 0);
  pending_.reset();
  return report;
}

StepReport Loop::read(const Pending& pending, int ago) {
  StepReport report;
  report.step = pending.step;
  report.lr = pending.lr;
  report.pairs = pending.pairs;
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
