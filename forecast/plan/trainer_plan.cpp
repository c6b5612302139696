#include "forecast/plan/trainer_plan.hpp"

#include <algorithm>

#include "execution/error.hpp"
#include "forecast/pipeline/planned_pipeline.hpp"
#include "forecast/plan/choose_states.hpp"
#include "layers/state/state_copy.hpp"

namespace stowage::forecast {
namespace {

double aux_scale(const TrainerOptions& options) {
  return 1.0 /
         (static_cast<double>(options.step.microbatches) * options.sharing.ranks.sequences().parts);
}

/// With zigzag chunks attention's result comes by messages, which are sent once.
/// @throws Error (exit 2) if it is to be computed again and may not be offloaded instead
void check_recompute(const TrainerOptions& options, const Expected& expected) {
  using Exchange = layers::ModelConfig::Attention::Exchange;
  if (!options.model.attention.zigzag || !expected.exchange ||
      expected.exchange->chosen != Exchange::keys)
    return;
  const offload::Policy& policy = options.planner.policy;
  const auto listed = [](const std::vector<offload::ModuleName>& names) {
    return std::ranges::any_of(names, [](const auto& name) { return name.covers("attn_proj"); });
  };
  if (!listed(policy.recompute)) return;
  if (policy.kind == offload::Policy::Kind::manual && listed(policy.offload)) return;
  execution::throw_usage(
      "recompute.modules: attn_proj cannot be computed again with parallel.context_tokens = "
      "\"zigzag\": attention's result comes by messages of other context ranks, which are sent "
      "once; leave it out, list it in offload.modules too (offload.policy = \"manual\"), or set "
      "parallel.context_tokens = \"contiguous\"");
}

TrainerOptions with_exchanges(TrainerOptions options, const Expected& expected) {
  if (expected.exchange) options.model.attention.exchange = expected.exchange->chosen;
  if (expected.expert_exchange) options.model.moe.exchange = expected.expert_exchange->chosen;
  return options;
}

/// With what the numbers of the optimizer ask for.
layers::StateOptions states_kept(const TrainerOptions& options) {
  layers::StateOptions state = options.state;
  state.running_norm = options.optimizer.spikes.factor > 0;
  state.ema = options.optimizer.ema_decay > 0;
  return state;
}

/// All that is decided, by what is expected and by other options.
TrainerOptions decided(const TrainerOptions& options, const Expected& expected) {
  TrainerOptions all = with_exchanges(options, expected);
  if (const auto& pipeline = expected.pipeline) {
    all.model.pattern = pipeline->pattern;
    all.model.virtual_stages = pipeline->virtual_stages;
    all.sharing.schedule = pipeline->schedule;
    all.sharing.stage_times = pipeline->times;
    if (pipeline->delayed) all.sharing.delayed_weights = pipeline->delayed->microbatches;
  }
  all.state = states_kept(options);
  if (all.state.host.automatic) all.state.host = choose_states(all);
  return all;
}

/// By class: those of the options that leave anything to the last one, which has room for all.
std::vector<double> capacity_factors(const TrainerOptions& options) {
  std::vector<double> factors;
  const int ranks = options.sharing.ranks.group(parallel::Group::experts).size();
  if (ranks > 1 && inputs::has_experts(options.model.letters()))
    for (const double factor : options.capacity_factors)
      if (factor < ranks) factors.push_back(factor);
  factors.push_back(0);
  return factors;
}

PipelineInputs pipeline_inputs(const TrainerOptions& options) {
  PipelineInputs expected{
      options.model,          options.precision,        options.step,
      options.sharing.ranks,  options.sharing.schedule, options.planner.rates,
      options.planner.policy, options.sharing.zero,     options.sharing.zero_bubble_bytes,
      states_kept(options)};
  expected.step.capacity = options.capacities.back();
  expected.step.capacity_factor = capacity_factors(options).front();
  return expected;
}

/// Whether what is decided about the tensors of one program can be said of the other's.
bool same_tensors(const execution::Program& one, const execution::Program& other) {
  return std::ranges::equal(one.tensors(), other.tensors(), {}, &execution::TensorInfo::name,
                            &execution::TensorInfo::name);
}

/// What a model keeps besides parameters.
std::vector<execution::TensorInfo> states_of(const layers::Model& model,
                                             const layers::DecodeShape& decode) {
  std::vector<execution::TensorInfo> all = model.states();
  if (decode.sequences == 0) return all;
  for (execution::TensorInfo& info : model.sequence_states(decode)) all.push_back(std::move(info));
  return all;
}

bool no_larger(const execution::Plan& one, const execution::Plan& other) {
  const auto fits = [&](execution::Region region) {
    return one.bytes[static_cast<int>(region)] <= other.bytes[static_cast<int>(region)];
  };
  return fits(execution::Region::transient) && fits(execution::Region::host);
}

}  // namespace

Expected decide_open_choices(const TrainerOptions& options) {
  const PipelineInputs open = pipeline_inputs(options);
  Expected expected{choose_exchange(open), choose_expert_exchange(open), std::nullopt};
  check_recompute(options, expected);
  if (options.sharing.ranks.shape[parallel::Axis::pipeline] > 1)
    expected.pipeline = choose_pipeline(pipeline_inputs(with_exchanges(options, expected)));
  return expected;
}

TrainerPlan::TrainerPlan(const TrainerOptions& options)
    : expected_(decide_open_choices(options)),
      options_(decided(options, expected_)),
      model_(options_.model, options_.precision, aux_scale(options_), options_.sharing.ranks),
      layout_(lay_out()),
      state_copy_bytes_(layers::state_copy_bytes(layout_, model_, options_.sharing)) {
  if (options_.state_copy) options_.planner.policy.state_copy_bytes = state_copy_bytes_;
  capacity_factors_ = capacity_factors(options_);
  if (capacity_factors_.size() > 1) options_.optimizer.attempts = true;  // a step may lack room
  if (options.state.host.automatic)
    plan_somehow(last_resorts(options_.state.host));
  else
    plan();
}

execution::PersistentLayout TrainerPlan::lay_out() const {
  return lay_out_state(model_.parameters(), states_of(model_, options_.decode), options_.precision,
                       options_.state, options_.sharing);
}

/// With the first of these homes with which it can be done, if it cannot be with those there are.
void TrainerPlan::plan_somehow(const std::vector<layers::StatesOnHost>& others) {
  for (auto next = others.begin();; ++next) {
    try {
      return plan();
    } catch (const execution::Error& error) {
      if (error.exit() != execution::Exit::usage || next == others.end()) throw;
    }
    training_.clear();
    evaluation_.clear();
    options_.state.host = *next;
    layout_ = lay_out();
  }
}

void TrainerPlan::plan() {
  if (options_.evaluation_microbatches > 0)
    for (const std::int64_t capacity : options_.capacities) evaluate(capacity);
  if (options_.decode.sequences > 0) plan_decode();
  if (options_.state.weights_only) return;
  if (options_.evaluates_ema)
    ema_exchange_ =
        planned(record_ema_exchange(model_, options_.optimizer, layout_, options_.sharing));
  if (options_.weight_norms)
    weight_norms_ = planned(record_weight_norms(model_, *options_.state.optimizer,
                                                options_.optimizer, layout_, options_.sharing));
  plan_smallest();
  if (options_.larger_classes) plan_larger();
}

/// Those that most steps run.
void TrainerPlan::plan_smallest() {
  auto& planned = training_.emplace_back();
  for (const std::int64_t capacity : options_.capacities)
    planned.push_back(record(capacity, capacity_factors_.front()));
  Training& largest = *planned.back();
  largest.plan = offload::make_plan(largest.recorded.program, layout_,
                                    planner(options_.capacities.back()), &largest.choice);
  for (std::size_t i = 0; i + 1 < planned.size(); ++i) plan_like(*planned[i], largest);
}

/// By what was decided for a larger capacity, if that takes no more memory than there, so that one
/// choice serves all; else by a choice of its own.
void TrainerPlan::plan_like(Training& training, const Training& larger) const {
  const execution::Program& program = training.recorded.program;
  offload::PlannerOptions options = planner(training.recorded.shape.capacity);
  if (same_tensors(program, larger.recorded.program)) {
    options.given = &larger.choice;
    try {
      training.plan = offload::make_plan(program, layout_, options, &training.choice);
      if (no_larger(training.plan, larger.plan)) return;
    } catch (const execution::Error& error) {
      if (error.exit() != execution::Exit::usage) throw;
    }
    options.given = nullptr;
  }
  training.plan = offload::make_plan(program, layout_, options, &training.choice);
}

/// Programs that few steps run cost no memory beyond what a budget allows, if what they save can
/// leave or be computed again.
void TrainerPlan::plan_larger() {
  const auto budget = static_cast<std::size_t>(options_.planner.policy.device_budget_bytes);
  const std::size_t held = layout_.bytes() + (options_.state_copy ? state_copy_bytes_ : 0);
  const std::size_t there = std::max(transient_bytes(), budget - std::min(budget, held));
  for (std::size_t i = 1; i < capacity_factors_.size(); ++i) {
    training_.emplace_back();
    for (const std::int64_t capacity : options_.capacities) {
      auto training = record(capacity, capacity_factors_[i]);
      offload::PlannerOptions options = planner(capacity);
      const execution::Program& program = training->recorded.program;
      training->plan = offload::make_plan(program, layout_, options, &training->choice);
      if (training->plan.bytes[static_cast<int>(execution::Region::transient)] > there) {
        options.policy.kind = offload::Policy::Kind::automatic;
        options.policy.device_budget_bytes = static_cast<std::int64_t>(layout_.bytes() + there);
        options.policy.state_copy_bytes = 0;
        try {
          training->plan = offload::make_plan(program, layout_, options, &training->choice);
        } catch (const execution::Error& error) {
          if (error.exit() != execution::Exit::usage) throw;  // else it takes what it needs
        }
      }
      training_.back().push_back(std::move(training));
    }
  }
}

void TrainerPlan::evaluate(std::int64_t capacity) {
  layers::StepShape shape = options_.step;
  shape.capacity = capacity;
  shape.microbatches = options_.evaluation_microbatches;
  shape.sources = 0;  // held-out sets are evaluated one by one
  auto evaluation = std::make_unique<Evaluation>();
  evaluation->recorded =
      record_evaluation(model_, shape, layout_, options_.sharing, options_.logits);
  evaluation->plan = offload::make_plan(evaluation->recorded.program, layout_, planner(capacity));
  evaluation_.push_back(std::move(evaluation));
}

void TrainerPlan::plan_decode() {
  decode_ = std::make_unique<Decode>();
  decode_->recorded = record_decode(model_, options_.decode, layout_);
  decode_->plan = offload::make_plan(decode_->recorded.program, layout_, options_.planner);
}

std::unique_ptr<TrainerPlan::Between> TrainerPlan::planned(layers::BetweenSteps recorded) const {
  auto between = std::make_unique<Between>();
  between->recorded = std::move(recorded);
  between->plan = offload::make_plan(between->recorded.program, layout_, options_.planner);
  return between;
}

std::vector<const TrainerPlan::Between*> TrainerPlan::between() const {
  std::vector<const Between*> all;
  for (const Between* one : {ema_exchange_.get(), weight_norms_.get()})
    if (one != nullptr) all.push_back(one);
  return all;
}

std::unique_ptr<TrainerPlan::Training> TrainerPlan::record(std::int64_t capacity,
                                                           double capacity_factor) const {
  layers::StepShape shape = options_.step;
  shape.capacity = capacity;
  shape.capacity_factor = capacity_factor;
  auto training = std::make_unique<Training>();
  training->recorded = record_training(model_, shape, *options_.state.optimizer, options_.optimizer,
                                       layout_, options_.sharing);
  return training;
}

offload::Prediction TrainerPlan::predict_alone(const Training& training) const {
  return offload::predict(training.recorded.program, training.plan, alone(options_.planner.rates));
}

int TrainerPlan::pipeline_rank() const {
  return options_.sharing.ranks.coordinates[parallel::Axis::pipeline];
}

std::vector<layers::PassTimes> TrainerPlan::pass_times(const Training& training,
                                                       const offload::Prediction& alone) const {
  return planned_times(*expected_.pipeline, pipeline_rank(),
                       planned_passes(training.recorded.program, training.plan, step_spans(alone)));
}

Timeline TrainerPlan::timeline(const Training& training, const offload::Prediction& alone) const {
  const PipelinePlan& pipeline = *expected_.pipeline;
  return with_times(pipeline,
                    scale_to_measured(pipeline, pipeline_rank(), pass_times(training, alone)));
}

double TrainerPlan::step_s(const Training& training) const {
  if (!expected_.pipeline) return training.plan.time_s;
  const offload::Prediction alone = predict_alone(training);
  const Timeline line = timeline(training, alone);
  return alone.time_s + line.time_s - line.ranks[pipeline_rank()].busy_s;
}

bool TrainerPlan::beyond_graphs(std::int64_t capacity) const {
  return options_.planner.graphs.mode != offload::GraphOptions::Mode::off &&
         options_.largest_graphed > 0 && capacity > options_.largest_graphed;
}

offload::PlannerOptions TrainerPlan::planner(std::int64_t capacity) const {
  offload::PlannerOptions planner = options_.planner;
  if (beyond_graphs(capacity)) planner.graphs.mode = offload::GraphOptions::Mode::off;
  return planner;
}

int TrainerPlan::capacity_class(const kernels::ExpertCapacity& demand) const {
  const auto lacks = [&](const kernels::ExpertCapacity& capacity) {
    return capacity.rows < demand.rows || capacity.slots < demand.slots;
  };
  int at = 0;
  while (at + 1 < capacity_classes() && lacks(training(at).front()->recorded.expert_capacity)) ++at;
  return at;
}

std::size_t TrainerPlan::bytes(execution::Region region) const {
  std::size_t most = 0;
  const auto at = static_cast<int>(region);
  for (const auto& of_class : training_)
    for (const auto& training : of_class) most = std::max(most, training->plan.bytes[at]);
  for (const auto& evaluation : evaluation_) most = std::max(most, evaluation->plan.bytes[at]);
  if (decode_) most = std::max(most, decode_->plan.bytes[at]);
  for (const Between* one : between()) most = std::max(most, one->plan.bytes[at]);
  return most;
}

std::vector<execution::QueueInfo> TrainerPlan::compute_queues() const {
  std::vector<execution::QueueInfo> queues;
  const auto add = [&](const execution::Plan& plan) {
    const execution::QueueInfo& queue = plan.queues.front();
    if (std::ranges::find(queues, queue.name, &execution::QueueInfo::name) == queues.end())
      queues.push_back(queue);
  };
  for (const auto& of_class : training_)
    for (const auto& training : of_class) add(training->plan);
  for (const auto& evaluation : evaluation_) add(evaluation->plan);
  if (decode_) add(decode_->plan);
  for (const Between* one : between()) add(one->plan);
  return queues;
}

std::vector<execution::PlannedProgram> TrainerPlan::programs() const {
  std::vector<execution::PlannedProgram> all;
  for (const auto& of_class : training_)
    for (const auto& training : of_class)
      all.push_back({&training->recorded.program, &training->plan});
  for (const auto& evaluation : evaluation_)
    all.push_back({&evaluation->recorded.program, &evaluation->plan});
  if (decode_) all.push_back({&decode_->recorded.program, &decode_->plan});
  for (const Between* one : between()) all.push_back({&one->recorded.program, &one->plan});
  return all;
}

void TrainerPlan::require_proven() const { execution::require_proven(programs()); }

}  // namespace stowage::forecast
