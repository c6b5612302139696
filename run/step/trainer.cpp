#include "run/step/trainer.hpp"

#include <algorithm>

#include "execution/error.hpp"
#include "run/step/staging.hpp"

namespace stowage::run {

Trainer::Trainer(std::unique_ptr<forecast::TrainerPlan> plan, execution::Backend& backend,
                 const QueueSetup& set_up)
    : plan_(std::move(plan)),
      device_(backend, plan_->layout(), plan_->transient_bytes(), plan_->host_bytes(),
              plan_->options().slack_bytes) {
  plan_->require_proven();
  const forecast::TrainerOptions& options = plan_->options();
  parallel::attach(options.sharing.ranks, device_.device_arena());
  if (set_up)
    for (const execution::QueueInfo& queue : plan_->compute_queues()) set_up(device_.queue(queue));
  execution::ExecutorOptions executor = options.executor;
  executor.proven = true;
  set_initial_state();
  for (int i = 0; i < plan_->capacity_classes(); ++i) {
    training_.emplace_back();
    for (const auto& training : plan_->training(i))
      training_.back().push_back(std::make_unique<execution::Executor>(
          training->recorded.program, training->plan, device_, executor));
  }
  for (const auto& evaluation : plan_->evaluation())
    evaluation_.push_back(std::make_unique<execution::Executor>(
        evaluation->recorded.program, evaluation->plan, device_, executor));
  if (const forecast::TrainerPlan::Decode* decode = plan_->decode())
    decode_ = std::make_unique<execution::Executor>(decode->recorded.program, decode->plan, device_,
                                                    executor);
  const auto between = [&](const forecast::TrainerPlan::Between* of) {
    return of == nullptr ? nullptr
                         : std::make_unique<execution::Executor>(of->recorded.program, of->plan,
                                                                 device_, executor);
  };
  ema_exchange_ = between(plan_->ema_exchange());
  weight_norms_ = between(plan_->weight_norms());
}

void Trainer::set_initial_state() {
  const forecast::TrainerOptions& options = plan_->options();
  layers::set_initial_state(device_, plan_->model().parameters(), options.precision, options.seed,
                            options.model.init_std, options.model.layers());
}

/// Nobody moves bytes of this memory any more when it is given back.
Trainer::~Trainer() {
  training_.clear();
  evaluation_.clear();
  decode_.reset();
  ema_exchange_.reset();
  weight_norms_.reset();
  parallel::attach(plan_->options().sharing.ranks, {});
}

std::size_t Trainer::pick(std::int64_t documents) const {
  const auto& capacities = plan_->options().capacities;
  const auto found = std::lower_bound(capacities.begin(), capacities.end(), documents);
  STOWAGE_ASSERT(found != capacities.end(), "a microbatch has {} documents, the largest program {}",
                 documents, capacities.back());
  return static_cast<std::size_t>(found - capacities.begin());
}

std::vector<execution::Executor*> Trainer::executors() {
  std::vector<execution::Executor*> all;
  for (const auto& of_class : training_)
    for (const auto& executor : of_class) all.push_back(executor.get());
  for (const auto& executor : evaluation_) all.push_back(executor.get());
  for (const auto* one : {&decode_, &ema_exchange_, &weight_norms_})
    if (*one) all.push_back(one->get());
  return all;
}

Trainer::Training Trainer::training(std::int64_t documents, int capacity_class) {
  const std::size_t at = pick(documents);
  return {plan_->training(capacity_class)[at]->recorded, *training_[capacity_class][at]};
}

Trainer::Evaluation Trainer::evaluation(std::int64_t documents) {
  const std::size_t at = pick(documents);
  STOWAGE_ASSERT(at < evaluation_.size(), "the run has no evaluation program");
  return {plan_->evaluation()[at]->recorded, *evaluation_[at]};
}

Trainer::Decode Trainer::decode() {
  STOWAGE_ASSERT(decode_ != nullptr, "the run has no program for one more token");
  return {plan_->decode()->recorded, *decode_};
}

void Trainer::exchange_ema() {
  STOWAGE_ASSERT(ema_exchange_ != nullptr, "the run has no program for averages of weights");
  ema_exchange_->step();
}

std::vector<double> Trainer::weight_norms() {
  STOWAGE_ASSERT(weight_norms_ != nullptr, "the run has no program for norms of weights");
  weight_norms_->step();
  return read_values(*weight_norms_, plan_->weight_norms()->recorded.norms, 0);
}

}  // namespace stowage::run
