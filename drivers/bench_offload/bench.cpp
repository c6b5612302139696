#include "drivers/bench_offload/bench.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <random>
#include <thread>
#include <utility>

#include "drivers/bench_offload/stages.hpp"
#include "execution/error.hpp"
#include "execution/op_timer.hpp"
#include "execution/verifier.hpp"
#include "forecast/plan/options.hpp"
#include "forecast/plan/policies.hpp"
#include "inputs/deck/check.hpp"
#include "layers/step/step_section.hpp"
#include "offload/prediction.hpp"
#include "offload/saved_tensors.hpp"
#include "parallel/groups/ranks.hpp"
#include "parallel/proof/require_joint_proof.hpp"
#include "results/statistics.hpp"
#include "run/machine/agreement.hpp"
#include "run/step/copies.hpp"
#include "run/step/staging.hpp"

namespace stowage::drivers {
namespace {

using execution::Plan;
using execution::Region;

constexpr int kWarmUp = 3;  ///< steps before a plan is timed

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::size_t transient_bytes(const Plan& plan) {
  return plan.bytes[static_cast<int>(Region::transient)];
}

forecast::TrainerOptions plain_options(const parallel::Communicator& world,
                                       const inputs::Deck& deck, const inputs::Data& data,
                                       run::Machine& machine) {
  forecast::TrainerOptions options = forecast::trainer_options(
      deck, forecast::step_needs(data), inputs::check_ranks(deck, world.size()),
      machine.connect(deck, world), machine.rank_order());
  options.capacity_factors = {};  // a step that lacks room is not the one to be timed
  options.planner.policy = {};
  options.planner.graphs = {};
  options.model.moe.bias_rate = 0;  // no step changes what the next one computes
  return options;
}

/// Predicted time of what a plan computes again.
double rerun_s(const execution::Program& program, const Plan& plan, const offload::Rates& rates) {
  double sum_s = 0;
  for (const execution::StepRange& section : plan.sections)
    for (int i = section.begin; i < section.end; ++i)
      if (const execution::Step& step = plan.steps[i]; step.what == execution::Step::What::rerun)
        sum_s += section.repeat * rates.time_s(program, step.op);
  return sum_s;
}

}  // namespace

BenchOffload::BenchOffload(const parallel::Communicator& world, const inputs::Deck& deck,
                           const BenchOffloadOptions& options, inputs::Data& data,
                           run::Machine& machine)
    : world_(world),
      deck_(deck),
      options_(options),
      data_(data),
      machine_(machine),
      trainer_(plain_options(world, deck, data, machine)),
      stage_(world.split(stage_index(), world.rank())),
      base_(forecast::trainer_options(deck, forecast::step_needs(data),
                                      inputs::check_ranks(deck, world.size()),
                                      trainer_.options().sharing.ranks, machine.rank_order())
                .planner) {}

/// Nobody moves bytes of this memory any more when it is given back.
BenchOffload::~BenchOffload() {
  keep_.reset();
  parallel::attach(trainer_.options().sharing.ranks, {});
}

bool BenchOffload::wanted(const std::string& name) const {
  return options_.only.empty() ||
         std::any_of(options_.only.begin(), options_.only.end(),
                     [&](const std::string& part) { return name.find(part) != std::string::npos; });
}

const execution::Program& BenchOffload::program() const {
  return trainer_.training().front()->recorded.program;
}

Plan BenchOffload::plan(const offload::PlannerOptions& options) const {
  Plan plan = offload::make_plan(program(), trainer_.layout(), options);
  const execution::PlannedProgram planned{&program(), &plan};
  execution::require_proven({&planned, 1});
  return plan;
}

/// One device for all plans: the host has room for everything that may move, or for what the deck
/// allows of it, since page-locking tens of GiB takes longer than the sweep.
void BenchOffload::make_device(std::size_t transient) {
  std::size_t host = trainer_.layout().host_bytes();
  for (const offload::SavedTensor& saved : offload::find_saved_tensors(program()))
    host += execution::align_up(program().info(saved.tensor).bytes()) + execution::kAlignment;
  if (const std::int64_t most = base_.policy.host_budget_bytes; most >= 0)
    host = std::min(host, static_cast<std::size_t>(most));
  device_ =
      std::make_unique<execution::Device>(machine_.backend(), trainer_.layout(), transient, host);
  parallel::attach(trainer_.options().sharing.ranks, device_->device_arena());
  set_initial_state();
  for (const execution::QueueInfo& queue : trainer_.compute_queues())
    machine_.prepare(device_->queue(queue));
  digest_ = std::make_unique<run::StateDigest>(*device_, trainer_, world_);
  keep_ = make_executor(trainer_.training().front()->plan);
}

void BenchOffload::set_initial_state() {
  const forecast::TrainerOptions& options = trainer_.options();
  layers::set_initial_state(*device_, trainer_.model().parameters(), options.precision,
                            options.seed, options.model.init_std, options.model.layers());
}

std::unique_ptr<execution::Executor> BenchOffload::make_executor(const Plan& plan) {
  execution::ExecutorOptions options = trainer_.options().executor;
  options.proven = true;
  options.warmup_steps = 0;  // the first step counts graph launches, and all are timed
  return std::make_unique<execution::Executor>(program(), plan, *device_, options);
}

/// Measures every op of the plan that keeps all, each between two events, and scales the times so
/// that they make up the step as it is without these events.
void BenchOffload::fit_rates(const Plan& keep) {
  const std::vector<double> times_s = steps_s(*keep_, 4 * kWarmUp);
  const double step_time_s = results::summarize(std::span(times_s).subspan(kWarmUp)).median;
  std::vector<std::vector<double>> by_op(program().ops().size());
  execution::OpTimer timer(machine_.backend(), keep);
  keep_->add(timer);
  for (int i = 0; i < 2 * kWarmUp; ++i) {
    step(*keep_);
    for (const execution::OpTimer::Interval& interval : timer.intervals())
      if (const int op = keep.steps[interval.step].op; op >= 0)
        by_op[op].push_back(interval.time_s());
  }
  keep_->remove(timer);
  std::vector<double>& measured_s = base_.rates.measured_s;
  measured_s.assign(by_op.size(), 0);
  for (std::size_t op = 0; op < by_op.size(); ++op)
    if (!by_op[op].empty()) measured_s[op] = results::summarize(by_op[op]).median;
  // Plans are made from these times, and all ranks of a stage must make the same ones.
  measured_s = run::of_rank_0(stage_, measured_s);
  STOWAGE_ASSERT(measured_s.size() == by_op.size(), "the first rank has {} ops, this one {}",
                 measured_s.size(), by_op.size());
  fit_ = step_time_s / offload::predict(program(), keep, base_.rates).time_s;
  fit_ = run::of_rank_0(stage_, {&fit_, 1}).front();
  for (double& time_s : measured_s) time_s *= fit_;
}

double BenchOffload::forward_s() const {
  const std::vector<char> backward = offload::backward_ops(program());
  double sum_s = 0;
  for (const execution::Section& section : program().sections()) {
    int end = section.begin;
    while (end < section.end && !backward[end]) ++end;
    if (end == section.end) continue;  // no microbatch
    for (int op = section.begin; op < end; ++op)
      sum_s += section.repeat * base_.rates.time_s(program(), op);
  }
  return sum_s;
}

double BenchOffload::movable_bytes() const {
  double sum = 0;
  for (const offload::SavedTensor& saved : offload::find_saved_tensors(program()))
    sum += program().sections()[saved.section].repeat *
           static_cast<double>(
               offload::movable_bytes(program().info(saved.tensor), base_.policy.min_tensor_bytes));
  return sum;
}

void BenchOffload::issue(execution::Executor& executor, double lr, double weight_decay) {
  const layers::TrainingProgram& recorded = trainer_.training().front()->recorded;
  inputs::Loader& loader = *data_.train;
  (void)loader.pass_untargeted(loader.steps_per_pass());
  run::stage_tokens(loader, executor, recorded.shape, recorded.inputs);
  const auto targets = static_cast<double>(loader.global_targets());
  run::stage_values(executor, recorded.loss_scale, {1.0 / targets});
  run::stage_values(executor, recorded.schedule, {lr, weight_decay});
  const std::int32_t go_on = layers::kGoOn;
  std::memcpy(executor.stage(recorded.go_on).data(), &go_on, sizeof(go_on));
  const kernels::Attempt attempt;
  if (recorded.attempt)
    std::memcpy(executor.stage(recorded.attempt).data(), &attempt, sizeof(attempt));
  if (recorded.asked) std::ranges::fill(executor.stage(recorded.asked), std::byte{0});
  executor.step();
}

void BenchOffload::step(execution::Executor& executor) {
  issue(executor);
  device_->synchronize();
}

std::vector<double> BenchOffload::steps_s(execution::Executor& executor, int count) {
  std::vector<double> end_s;
  issue(executor);
  for (int i = 0; i < count; ++i) {
    issue(executor);
    end_s.push_back(executor.end_time_s(1));
  }
  end_s.push_back(executor.end_time_s());
  std::vector<double> time_s;
  for (std::size_t i = 1; i < end_s.size(); ++i) time_s.push_back(end_s[i] - end_s[i - 1]);
  return time_s;
}

BenchOffload::Values BenchOffload::values(execution::Executor& executor, int ago) const {
  const layers::TrainingProgram& recorded = trainer_.training().front()->recorded;
  return {run::read_values(executor, recorded.loss, ago),
          run::read_values(executor, recorded.grad_norm, ago)};
}

OffloadOutcome BenchOffload::prepare(const OffloadCase& one) const {
  OffloadOutcome outcome;
  outcome.name = one.name;
  try {
    outcome.plan = plan(one.options);
    outcome.part = static_cast<double>(outcome.plan.bytes[static_cast<int>(Region::transient)]) /
                   static_cast<double>(device_->bytes(Region::transient));
    outcome.bytes_in_gradient_memory = offload::bytes_in_gradient_memory(program(), outcome.plan);
    outcome.rerun_s = rerun_s(program(), outcome.plan, one.options.rates);
  } catch (const execution::Error& error) {
    if (error.exit() != execution::Exit::usage) throw;
    outcome.refused = error.what();
  }
  for (const Region region : {Region::transient, Region::host})
    if (outcome.plan.bytes[static_cast<int>(region)] > device_->bytes(region))
      outcome.refused = "needs more memory than what is there for all plans";
  return outcome;
}

void BenchOffload::train_from_start(OffloadOutcome& outcome, execution::Executor& executor) {
  inputs::Loader& loader = *data_.train;
  const inputs::LoaderPosition start = loader.position();
  device_->synchronize();
  set_initial_state();
  for (int i = 0; i < kDigestedSteps; ++i) {
    issue(executor, inputs::read(deck_, &layers::LearningRate::lr),
          inputs::read(deck_, &layers::OptimizerConfig::weight_decay));
    loader.advance();
  }
  outcome.state = digest_->make();
  loader.seek(start);
  set_initial_state();
}

void BenchOffload::warm_up(OffloadOutcome& outcome, execution::Executor& executor) {
  step(executor);
  outcome.counters = executor.counters();
  outcome.modules = run::timed_modules(program(), outcome.plan, {}, executor.counted_bytes());
  for (int i = 1; i < kWarmUp; ++i) step(executor);
}

/// Times the copies of a plan and what waits for them, issued op by op: the step that waits least.
void BenchOffload::time_copies(OffloadOutcome& outcome, execution::Executor& executor) {
  execution::OpTimer timer(machine_.backend(), outcome.plan);
  run::CountedBytes counted(executor);
  executor.add(timer);
  executor.add(counted);
  for (int i = 0; i < kWarmUp; ++i) {
    step(executor);
    std::vector<offload::ModuleSummary> modules =
        run::timed_modules(program(), outcome.plan, timer.intervals(), counted.of_last_step());
    if (i == 0 || run::exposed_s(modules) < run::exposed_s(outcome.modules))
      outcome.modules = std::move(modules);
  }
  outcome.timed_modules = true;
  executor.remove(timer);
  executor.remove(counted);
}

/// A search takes seconds on one core, and no plan knows of another: each core takes the next.
std::vector<OffloadOutcome> BenchOffload::prepare_all() const {
  const std::vector<OffloadCase> all = cases();
  std::vector<OffloadOutcome> outcomes(all.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < all.size(); i = next++) outcomes[i] = prepare(all[i]);
  };
  std::vector<std::future<void>> others;
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  for (std::size_t i = 1; i < std::min(cores, all.size()); ++i)
    others.push_back(std::async(std::launch::async, work));
  work();
  for (std::future<void>& other : others) other.get();
  return outcomes;
}

void BenchOffload::agree(std::vector<OffloadOutcome>& outcomes) const {
  std::vector<execution::PlannedProgram> planned{{&program(), &trainer_.training().front()->plan}};
  for (OffloadOutcome& outcome : outcomes) {
    if (!outcome.refused.empty() && stages() > 1)
      outcome.refused = fmt::format("stage {}: {}", stage_index(), outcome.refused);
    outcome.refused = run::first_objection(world_, outcome.refused);
    if (outcome.refused.empty()) planned.push_back({&program(), &outcome.plan});
  }
  parallel::require_joint_proof(world_, planned, machine_.rank_order());
}

void BenchOffload::gather(std::vector<OffloadOutcome>& outcomes) const {
  for (OffloadOutcome& outcome : outcomes) {
    outcome.same_bits = world_.max(outcome.same_bits ? 0 : 1) == 0;
    outcome.rank_time_s = run::by_rank(world_, outcome.time_s);
    if (world_.rank() == 0)
      outcome.time_s =
          run::largest_of_ranks(outcome.rank_time_s, static_cast<std::size_t>(world_.size()));
    if (outcome.refused.empty()) outcome.stages = needs_by_stage(world_, trainer_, outcome);
  }
}

/// The plans that are asked for, behind the one that all others stand beside.
std::vector<OffloadCase> BenchOffload::cases() const {
  const std::size_t persistent = trainer_.layout().bytes();
  offload::PlannerOptions again = base_;
  again.policy = forecast::full_recompute(base_.policy, program());
  const SweepBytes bytes{.persistent = persistent,
                         .kept = transient_bytes(trainer_.training().front()->plan),
                         .recomputed = transient_bytes(plan(again))};
  const std::vector<OffloadCase> all = offload_cases(base_, options_.modes, program(), bytes);
  std::vector<OffloadCase> some{all.front()};
  std::string names;
  for (std::size_t i = 0; i < all.size(); ++i) {
    names += (i == 0 ? "" : ", ") + all[i].name;
    if (i > 0 && wanted(all[i].name)) some.push_back(all[i]);
  }
  if (some.size() == 1 && !wanted(all.front().name))
    execution::throw_usage("--only {}: no plan has such a name; there are {}",
                           fmt::join(options_.only, ","), names);
  return some;
}

std::vector<OffloadOutcome> BenchOffload::run() {
  const Plan& keep = trainer_.training().front()->plan;
  const double start_s = now_s();
  (void)cases();  // refuses names before anything is allocated
  std::vector<OffloadOutcome> outcomes;
  agree(outcomes);  // on the plan that keeps everything, before its first step
  make_device(transient_bytes(keep));
  fit_rates(keep);
  outcomes = prepare_all();
  agree(outcomes);
  for (const OffloadOutcome& outcome : outcomes)
    if (outcome.name.starts_with(kDeckCase) && !outcome.refused.empty())
      execution::throw_usage("{}: {}", outcome.name, outcome.refused);
  std::vector<std::unique_ptr<execution::Executor>> executors;
  for (OffloadOutcome& outcome : outcomes) {
    executors.push_back(outcome.refused.empty() ? make_executor(outcome.plan) : nullptr);
    if (!executors.back()) continue;
    warm_up(outcome, *executors.back());
    if (outcome.counters.launches == 0) time_copies(outcome, *executors.back());
    train_from_start(outcome, *executors.back());
  }
  run_rounds(outcomes, executors, start_s);
  gather(outcomes);
  return outcomes;
}

/// As in training, the host is one step ahead and a step lasts from the end of the step before to
/// its own: what issuing costs shows only where the GPU waits for it.
void BenchOffload::run_rounds(std::vector<OffloadOutcome>& outcomes,
                              const std::vector<std::unique_ptr<execution::Executor>>& executors,
                              double start_s) {
  const Values wanted = values(*keep_, 0);
  execution::Executor* last = keep_.get();
  OffloadOutcome* pending = nullptr;  // of the last step; none while it is not to be counted
  double end_s = 0;
  const auto read = [&](int ago) {
    const double before_s = std::exchange(end_s, last->end_time_s(ago));
    if (pending == nullptr) return;
    pending->time_s.push_back(end_s - before_s);
    pending->same_bits = pending->same_bits && values(*last, ago) == wanted;
  };
  const auto late = [&] {  // by rank 0's clock
    if (options_.seconds == 0) return false;
    const bool over = now_s() - start_s > static_cast<double>(options_.seconds);
    return world_.max(world_.rank() == 0 && over ? 1 : 0) != 0;
  };
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < outcomes.size(); ++i)
    if (executors[i]) order.push_back(i);
  std::mt19937_64 shuffle(static_cast<std::uint64_t>(order.size()));  // the same on all ranks
  issue(*last);
  for (std::int64_t round = 0; round < options_.samples && (round == 0 || !late()); ++round) {
    std::shuffle(order.begin(), order.end(), shuffle);
    for (const std::size_t at : order) {
      issue(*executors[at]);
      read(executors[at].get() == last ? 1 : 0);
      last = executors[at].get();
      pending = &outcomes[at];
    }
  }
  read(0);
}

}  // namespace stowage::drivers
