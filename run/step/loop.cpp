#include "run/step/loop.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>

#include "execution/error.hpp"
#include "layers/mixers/stream_squares.hpp"
#include "layers/model/model.hpp"
#include "results/progress.hpp"
#include "run/step/staging.hpp"

namespace stowage::run {
namespace {

std::uint64_t bits(double value) { return std::bit_cast<std::uint64_t>(value); }

/// Numbers that are not finite have bits too.
bool same_bits(const std::vector<double>& one, const std::vector<double>& other) {
  return std::ranges::equal(one, other, {}, bits, bits);
}

}  // namespace

Loop::Loop(Trainer& trainer, inputs::Data& data, const layers::LearningRate& learning_rate,
           double weight_decay, Bad bad)
    : trainer_(trainer),
      data_(data),
      learning_rate_(learning_rate),
      weight_decay_(weight_decay),
      bad_(bad),
      guarded_(bad == Bad::done_again || trainer.plan().capacity_classes() > 1),
      last_end_s_(results::steady_seconds()) {}

std::optional<StepReport> Loop::issue(std::int64_t step, Then then) {
  const std::optional<Pending> before = std::exchange(pending_, std::nullopt);
  kernels::Attempt attempt = first_attempt(-1);
  if (guarded_) attempt.good_steps = before ? before->good_steps + 1 : good_steps();
  good_steps_.reset();
  pending_ = start(step, then, attempt);
  if (!before) return std::nullopt;
  const Settled settled = settle(*before, before->executor == pending_->executor ? 1 : 0);
  if (!settled.redone && (settled.report.ok || !guarded_)) return settled.report;
  // The step under way found one good step fewer than it expected, so it changed nothing.
  attempt.good_steps = before->good_steps + (settled.report.ok ? 1 : 0);
  data_.train->seek(pending_->position);
  pending_ = start(step, then, attempt);
  return settled.report;
}

Loop::Pending Loop::start(std::int64_t step, Then then, const kernels::Attempt& attempt) {
  inputs::Loader& loader = *data_.train;
  const inputs::LoaderPosition position = loader.position();
  const std::int64_t passed = loader.pass_untargeted(loader.steps_per_pass());
  const auto [recorded, executor] = trainer_.training(loader.global_documents(), capacity_class_);
  Pending pending{.executor = &executor,
                  .recorded = &recorded,
                  .step = step + 1,
                  .then = then,
                  .capacity_class = capacity_class_,
                  .position = position,
                  .lr = learning_rate_.at(step),
                  .passed_batches = passed,
                  .good_steps = attempt.good_steps};
  const auto targets = static_cast<double>(loader.global_targets());
  pending.tokens = static_cast<double>(loader.global_tokens());
  pending.pairs = stage_tokens(loader, executor, recorded.shape, recorded.inputs);
  stage_values(executor, recorded.loss_scale, {1.0 / targets});
  stage_values(executor, recorded.schedule, {pending.lr, weight_decay_});
  std::memcpy(executor.stage(recorded.go_on).data(), &then, sizeof(then));
  if (recorded.attempt)
    std::memcpy(executor.stage(recorded.attempt).data(), &attempt, sizeof(attempt));
  if (recorded.asked) {
    pending.asked = pending.step % trainer_.plan().options().optimizer.update_norms == 0;
    const std::int32_t asked = pending.asked ? 1 : 0;
    std::memcpy(executor.stage(recorded.asked).data(), &asked, sizeof(asked));
  }
  executor.step();
  loader.advance();
  return pending;
}

Loop::Settled Loop::settle(Pending pending, int ago) {
  Settled settled;
  while (!judge(pending, ago)) {
    const ExpertReport so_far = pending.experts;
    data_.train->seek(pending.position);
    pending = start(pending.step - 1, pending.then, first_attempt(pending.good_steps));
    pending.experts = so_far;
    ++pending.experts.reruns;
    ago = 0;
    settled.redone = true;
  }
  const Outcome outcome = read(pending, ago);
  settled.report = outcome.report;
  if (outcome.report.ok || bad_ == Bad::skipped) return settled;
  settled.report = again(pending, outcome);
  settled.redone = true;
  return settled;
}

StepReport Loop::again(const Pending& pending, const Outcome& first) {
  data_.train->seek(pending.position);
  Pending second =
      start(pending.step - 1, pending.then, {.good_steps = pending.good_steps, .last = 1});
  (void)judge(second, 0);
  Outcome outcome = read(second, 0);
  StepReport& report = outcome.report;
  report.first = FirstAttempt{.loss = first.report.loss,
                              .grad_norm = first.report.grad_norm,
                              .same_bits = same_bits(first.values, outcome.values),
                              .same_own_loss = same_bits(first.own_loss, outcome.own_loss),
                              .same_own_norm = same_bits(first.own_norm, outcome.own_norm)};
  report.time_s += first.report.time_s;
  report.disturbed = true;
  return report;
}

kernels::Attempt Loop::first_attempt(std::int64_t good_steps) const {
  return {.good_steps = good_steps, .last = bad_ == Bad::skipped ? 1 : 0};
}

std::int64_t Loop::good_steps() {
  if (good_steps_) return *good_steps_;
  std::int64_t count = 0;
  trainer_.device().read(layers::kGoodSteps, std::as_writable_bytes(std::span(&count, 1)));
  return count;
}

execution::Executor& Loop::next() {
  return trainer_.training(data_.train->global_documents(), capacity_class_).executor;
}

std::optional<StepReport> Loop::drain() {
  if (!pending_) return std::nullopt;
  const Pending last = *std::exchange(pending_, std::nullopt);
  StepReport report = settle(last, 0).report;
  if (guarded_) good_steps_ = last.good_steps + (report.ok ? 1 : 0);
  return report;
}

bool Loop::judge(Pending& pending, int ago) {
  if (!pending.recorded->expert_rows) return true;
  const forecast::TrainerPlan& plan = trainer_.plan();
  std::array<std::int32_t, 4> rows{};
  std::memcpy(rows.data(), pending.executor->result(pending.recorded->expert_rows, ago).data(),
              sizeof(rows));
  const auto [lacking, most, most_of_one, slots] = rows;
  capacity_class_ = plan.capacity_class({.rows = most, .slots = slots});
  const bool room = lacking == 0 || pending.capacity_class == plan.capacity_classes() - 1;
  if (!room) capacity_class_ = std::max(capacity_class_, pending.capacity_class + 1);
  const layers::TrainingProgram& all = plan.training(plan.capacity_classes() - 1).front()->recorded;
  const double balanced = static_cast<double>(all.expert_capacity.rows) /
                          plan.options().sharing.ranks.group(parallel::Group::experts).size();
  const double of_one = static_cast<double>(all.expert_capacity.rows) /
                        static_cast<double>(plan.options().model.moe.experts);
  ExpertReport& report = pending.experts;
  report.capacity = static_cast<double>(pending.recorded->expert_capacity.rows) / balanced;
  report.busiest_rank = most / balanced;
  report.busiest_expert = most_of_one / of_one;
  report.exchanged_bytes += pending.recorded->expert_bytes;
  return room;
}

Loop::Outcome Loop::read(const Pending& pending, int ago) {
  Outcome outcome;
  StepReport& report = outcome.report;
  report.step = pending.step;
  report.lr = pending.lr;
  report.capacity = pending.recorded->shape.capacity;
  report.passed_batches = pending.passed_batches;
  report.pairs = pending.pairs;
  report.tokens = pending.tokens;
  report.experts = pending.experts;
  const std::vector<double> loss = read_values(*pending.executor, pending.recorded->loss, ago);
  report.loss = loss[0] / loss[1];
  outcome.values = loss;
  if (pending.recorded->router_losses) {
    const auto routers = read_values(*pending.executor, pending.recorded->router_losses, ago);
    report.aux_loss = routers[0];
    report.z_loss = routers[1];
    outcome.values.insert(outcome.values.end(), routers.begin(), routers.end());
  }
  if (pending.recorded->z_loss) {
    const auto sums = read_values(*pending.executor, pending.recorded->z_loss, ago);
    report.head_z_loss = sums[0] / sums[1];
    outcome.values.insert(outcome.values.end(), sums.begin(), sums.end());
  }
  for (const execution::Tensor of_depth : pending.recorded->mtp_losses) {
    const auto sums = read_values(*pending.executor, of_depth, ago);
    report.mtp_losses.push_back(sums[0] / sums[1]);  // NaN without a target
    outcome.values.insert(outcome.values.end(), sums.begin(), sums.end());
  }
  if (const execution::Tensor load = pending.recorded->program.find(layers::kRouterLoad))
    report.router_load = read_values(*pending.executor, load, ago);
  if (const execution::Tensor norms = pending.recorded->program.find(layers::kGradientNorms))
    report.gradient_norms = read_values(*pending.executor, norms, ago);
  if (pending.asked)
    report.update_squares =
        read_values(*pending.executor, pending.recorded->program.find(layers::kUpdateSquares), ago);
  if (const execution::Tensor squares = pending.recorded->program.find(layers::kStreamSquares)) {
    const layers::StepShape& shape = pending.recorded->shape;
    const auto rows =
        static_cast<double>(shape.tokens * shape.microbatches *
                            trainer_.plan().options().sharing.ranks.sequences().parts);
    for (const double sum : read_values(*pending.executor, squares, ago))
      report.activation_norms.push_back(std::sqrt(sum / rows));
  }
  if (pending.recorded->source_losses) {
    const auto sums = read_values(*pending.executor, pending.recorded->source_losses, ago);
    for (std::size_t i = 0; i < sums.size(); i += 2)
      report.source_losses.push_back({sums[i], sums[i + 1]});
  }
  report.grad_norm = read_values(*pending.executor, pending.recorded->grad_norm, ago)[0];
  outcome.values.push_back(report.grad_norm);
  if (pending.recorded->own_loss)
    outcome.own_loss = read_values(*pending.executor, pending.recorded->own_loss, ago);
  if (pending.recorded->own_norm)
    outcome.own_norm = read_values(*pending.executor, pending.recorded->own_norm, ago);
  std::int32_t ok = 0;
  std::memcpy(&ok, pending.executor->result(pending.recorded->step_ok, ago).data(), sizeof(ok));
  report.ok = ok != 0;
  report.stop = ok == layers::kStopAfter;
  report.save = ok == layers::kSaveAfter;
  if (from_ != nullptr) last_end_s_ = std::exchange(from_, nullptr)->time_s();
  const double end_s = pending.executor->end_time_s(ago);
  report.time_s = end_s - last_end_s_;
  last_end_s_ = end_s;
  return outcome;
}

Evaluations Loop::evaluate(std::int64_t batches) {
  STOWAGE_ASSERT(!pending_, "an evaluation is asked for while a step is under way");
  const auto mean = [](Evaluation found) {
    found.loss /= found.targets;
    found.accuracy /= found.targets;
    return found;
  };
  const auto add = [](std::vector<std::array<double, 2>>& onto, const auto& sums) {
    onto.resize(sums.size());
    for (std::size_t i = 0; i < sums.size(); ++i)
      for (const int j : {0, 1}) onto[i][j] += sums[i][j];
  };
  Evaluations all;
  for (const inputs::Data::HeldOut& set : data_.held_out) {
    const Evaluation sums = sums_of(set, batches);
    all.all.loss += sums.loss;
    all.all.accuracy += sums.accuracy;
    all.all.tokens += sums.tokens;
    all.all.targets += sums.targets;
    add(all.all.further, sums.further);
    if (!set.name.empty()) all.sets.push_back({set.name, mean(sums)});
  }
  all.all = mean(all.all);
  restart_clock();
  return all;
}

Evaluation Loop::sums_of(const inputs::Data::HeldOut& set, std::int64_t batches) {
  inputs::Loader& loader = *set.loader;
  loader.seek({loader.position().seed, 0, 0});
  const std::int64_t count = set.evaluated(batches);
  Evaluation sums;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto [recorded, executor] = trainer_.evaluation(loader.global_documents());
    (void)stage_tokens(loader, executor, recorded.shape, recorded.inputs);
    executor.step();
    sums.tokens += static_cast<double>(loader.global_tokens());
    loader.advance();
    const std::vector<double> loss = read_values(executor, recorded.loss, 0);
    sums.loss += loss[0];
    sums.targets += loss[1];
    sums.accuracy += read_values(executor, recorded.hits, 0)[0];
    sums.further.resize(recorded.mtp_losses.size());
    for (std::size_t depth = 0; depth < sums.further.size(); ++depth) {
      const std::vector<double> found = read_values(executor, recorded.mtp_losses[depth], 0);
      for (const int j : {0, 1}) sums.further[depth][j] += found[j];
    }
  }
  return sums;
}

void Loop::restart_clock() {
  if (from_ != nullptr)
    (void)std::exchange(from_, nullptr)->time_s();  // what is before it ends too
  last_end_s_ = results::steady_seconds();
}

}  // namespace stowage::run
