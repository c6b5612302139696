#include "drivers/bench_scaling/measure.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>

#include "drivers/bench_scaling/stage_times.hpp"
#include "execution/error.hpp"
#include "execution/op_timer.hpp"
#include "forecast/plan/exposure.hpp"
#include "forecast/plan/options.hpp"
#include "forecast/rates/machine_section.hpp"
#include "inputs/data/run_data.hpp"
#include "inputs/data/run_section.hpp"
#include "inputs/deck/check.hpp"
#include "layers/step/step_section.hpp"
#include "offload/offload_section.hpp"
#include "parallel/proof/require_joint_proof.hpp"
#include "results/format.hpp"
#include "run/machine/agreement.hpp"
#include "run/state/state_digest.hpp"
#include "run/step/loop.hpp"

namespace stowage::drivers {
namespace {

using execution::Lifetime;
using inputs::Deck;
using parallel::Communicator;

constexpr int kWarmUp = 3;     ///< steps before a point is timed, beside those before graphs
constexpr int kTimedByOp = 3;  ///< steps that are timed op by op

std::unique_ptr<forecast::TrainerPlan> make_plan(const Deck& deck, const Communicator& ranks,
                                                 const inputs::Data& data, run::Machine& machine) {
  return std::make_unique<forecast::TrainerPlan>(forecast::trainer_options(
      deck, forecast::step_needs(data), inputs::check_ranks(deck, ranks.size()),
      machine.connect(deck, ranks), machine.rank_order()));
}

/// Why the ranks have no room for the plan; empty: they have.
std::string lacks_memory(const forecast::TrainerPlan& plan, const Communicator& ranks,
                         const run::Machine& machine) {
  std::string objection;
  try {
    machine.require_memory(plan);
  } catch (const execution::Error& error) {
    if (error.exit() != execution::Exit::environment) throw;
    objection = error.what();
  }
  return run::first_objection(ranks, objection);
}

/// One point under way.
class Measurement {
 public:
  Measurement(const ScalingPoint& point, const Communicator& ranks, run::Machine& machine,
              inputs::Data& data, run::Trainer& trainer, const std::function<bool()>& stop)
      : point_(point),
        ranks_(ranks),
        machine_(machine),
        trainer_(trainer),
        stop_(stop),
        loop_(trainer, data, inputs::read<layers::LearningRate>(point.deck),
              inputs::read(point.deck, &layers::OptimizerConfig::weight_decay)) {}

  /// False if it was stopped.
  bool run(std::int64_t samples) {
    const auto before_graphs = inputs::read(point_.deck, &offload::GraphConfig::warmup_steps);
    if (!steps(kWarmUp + before_graphs)) return false;
    first_loss_ = reports_.front().loss;
    state_ = run::StateDigest(trainer_.device(), trainer_.plan(), ranks_).make();
    if (!time_ops()) return false;
    reports_.clear();
    loop_.restart_clock();
    const double energy_j = machine_.energy_j();
    if (!steps(samples)) return false;
    energy_j_ = ranks_.sum(machine_.energy_j() - energy_j);
    return true;
  }

  /// Collective.
  results::Samples samples() const {
    std::vector<double> times;
    for (const run::StepReport& report : reports_) times.push_back(report.time_s);
    results::Samples all{.path = "scaling/" + point_.name(),
                         .time_s = run::by_rank(ranks_, times),
                         .ranks = ranks_.size()};
    add_layout(all.attributes);
    add_parts(all.attributes);
    std::ranges::copy(stages_.fields(trainer_.plan(), ranks_), std::back_inserter(all.attributes));
    add_bytes(all.attributes);
    add_prediction(all.attributes);
    all.attributes.push_back({"loss", first_loss_});
    all.attributes.push_back({"state_digest", state_.text});
    all.attributes.push_back({"differing", static_cast<std::int64_t>(state_.differing.size())});
    if (!std::isnan(energy_j_)) all.attributes.push_back({"energy_j", energy_j_});
    return all;
  }

 private:
  /// Trains so many steps, one ahead; their reports are kept. False if it was stopped.
  bool steps(std::int64_t count) {
    bool stopped = false;
    const auto note = [&](const std::optional<run::StepReport>& report) {
      if (!report) return;
      reports_.push_back(*report);
      stopped = stopped || report->stop;
    };
    for (std::int64_t i = 0; i < count && !stopped; ++i)
      note(loop_.issue(step_++, stop_() ? run::Loop::Then::stop : run::Loop::Then::go_on));
    note(loop_.drain());
    return !stopped;
  }

  bool time_ops() {
    bool goes_on = true;
    for (int i = 0; i < kTimedByOp && goes_on; ++i) {
      execution::Executor& executor = loop_.next();
      execution::OpTimer timer(machine_.backend(), executor.plan());
      executor.add(timer);
      goes_on = steps(1);
      const auto intervals = timer.intervals();
      parts_.push_back(forecast::step_parts(executor.plan(), intervals));
      const auto exposures = forecast::communication_exposure(executor.plan(), intervals);
      const auto all = exposures.find(forecast::kAllGroups);
      stages_.add(trainer_.plan(), executor, intervals);
      communication_s_ += all == exposures.end() ? 0 : all->second.busy_s;
      executor.remove(timer);
    }
    return goes_on;
  }

  void add_layout(results::Fields& fields) const {
    using parallel::Axis;
    fields.push_back({"scale", point_.scale});
    fields.push_back({"layout", point_.layout.name()});
    fields.push_back({"mode", point_.mode});
    for (const Axis axis : parallel::kAllAxes)
      fields.push_back(
          {std::string(parallel::name(axis)), std::int64_t{point_.layout.shape[axis]}});
    fields.push_back({"zero", std::int64_t{point_.layout.zero ? 1 : 0}});
    const auto batch = inputs::read(point_.deck, &inputs::TrainConfig::global_batch_size);
    fields.push_back({"global_batch", batch});
    fields.push_back(
        {"tokens", batch * inputs::read(point_.deck, &inputs::TrainConfig::seq_length)});
  }

  /// Means over the ranks and the steps that were timed op by op, so that they add up.
  void add_parts(results::Fields& fields) const {
    const auto mean = [&](auto&& part) {
      double sum = 0;
      for (const forecast::StepParts& parts : parts_) sum += part(parts);
      return ranks_.sum(sum) / (ranks_.size() * kTimedByOp);
    };
    fields.push_back({"timed_step_s", mean([](auto& p) { return p.total_s(); })});
    fields.push_back({"compute_s", mean([](auto& p) { return p.compute_s; })});
    fields.push_back(
        {"exposed_communication_s", mean([](auto& p) { return p.exposed_communication_s; })});
    fields.push_back({"exposed_copy_s", mean([](auto& p) { return p.exposed_copies_s; })});
    fields.push_back({"idle_s", mean([](auto& p) { return p.idle_s; })});
    fields.push_back(
        {"communication_s", ranks_.sum(communication_s_) / (ranks_.size() * kTimedByOp)});
    fields.push_back({"compute_s_of_ranks", compute_of_ranks()});
  }

  /// Seconds of each rank, without what it waits for others: a slow one makes all steps slow, and
  /// only this says which. Empty on other ranks than the first.
  std::string compute_of_ranks() const {
    double mean = 0;
    for (const forecast::StepParts& parts : parts_) mean += parts.compute_s / kTimedByOp;
    std::string text;
    for (const double rank_s : run::by_rank(ranks_, std::span(&mean, 1)))
      text += (text.empty() ? "" : " ") + results::exact(rank_s);
    return text;
  }

  /// Of the rank that needs most, class by class.
  void add_bytes(results::Fields& fields) const {
    const forecast::TrainerPlan& plan = trainer_.plan();
    const auto most = [&](const char* what, std::size_t bytes) {
      fields.push_back({what, ranks_.max(static_cast<std::int64_t>(bytes))});
    };
    most("parameter_bytes", plan.layout().bytes(Lifetime::parameter));
    most("gradient_bytes", plan.layout().bytes(Lifetime::gradient));
    most("optimizer_bytes", plan.layout().bytes(Lifetime::optimizer_state));
    most("transient_bytes", plan.transient_bytes());
    most("device_bytes", plan.layout().bytes() + plan.transient_bytes());
    most("host_bytes", plan.host_bytes());
  }

  /// Worth something for the machine that the deck describes.
  void add_prediction(results::Fields& fields) const {
    if (inputs::read(point_.deck, &forecast::MachineConfig::name).empty()) return;
    const forecast::TrainerPlan& plan = trainer_.plan();
    const double predicted_s = plan.step_s(*plan.training().front());
    const auto& pipeline = plan.expected().pipeline;
    const double bubble = pipeline ? pipeline->timeline.bubble() : 0;
    const std::vector<double> all_s = run::by_rank(ranks_, std::span(&predicted_s, 1));
    if (ranks_.rank() != 0) return;
    fields.push_back({"predicted_time_s", *std::ranges::max_element(all_s)});
    fields.push_back({"predicted_bubble", bubble});
  }

  const ScalingPoint& point_;
  const Communicator& ranks_;
  run::Machine& machine_;
  run::Trainer& trainer_;
  const std::function<bool()>& stop_;
  run::Loop loop_;
  std::int64_t step_ = 0;
  std::vector<run::StepReport> reports_;
  std::vector<forecast::StepParts> parts_;
  StageTimes stages_;
  double communication_s_ = 0;
  double first_loss_ = 0;
  run::StateDigest::Value state_;
  double energy_j_ = std::nan("");
};

}  // namespace

ScalingOutcome measure(const ScalingPoint& point, const ScalingOptions& options,
                       const Communicator& ranks, run::Machine& machine,
                       const std::function<bool()>& stop) {
  const Deck& deck = point.deck;
  const parallel::SequencePart part = forecast::sequence_part(deck, ranks);
  inputs::Data data = open_data(deck, part.index, part.parts);
  std::unique_ptr<forecast::TrainerPlan> plan = make_plan(deck, ranks, data, machine);
  plan->require_proven();
  ScalingOutcome outcome;
  outcome.refused = lacks_memory(*plan, ranks, machine);
  if (!outcome.refused.empty()) return outcome;
  parallel::require_joint_proof(ranks, plan->programs(), machine.rank_order());
  run::Trainer trainer(std::move(plan), machine.backend(),
                       [&](execution::Queue& queue) { machine.prepare(queue); });
  Measurement measurement(point, ranks, machine, data, trainer, stop);
  outcome.stopped = !measurement.run(options.samples);
  if (outcome.stopped) return outcome;
  results::Samples samples = measurement.samples();
  if (ranks.rank() == 0) outcome.samples = std::move(samples);
  return outcome;
}

}  // namespace stowage::drivers
