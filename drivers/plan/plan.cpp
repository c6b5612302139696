#include "drivers/plan/plan.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "drivers/plan/picture.hpp"
#include "execution/verifier.hpp"
#include "forecast/layouts/remedies.hpp"
#include "forecast/layouts/training_cost.hpp"
#include "forecast/plan/delayed_text.hpp"
#include "forecast/plan/exposure.hpp"
#include "forecast/plan/memory_fit.hpp"
#include "forecast/plan/memory_table.hpp"
#include "forecast/plan/planned_rank.hpp"
#include "forecast/plan/tree_price.hpp"
#include "forecast/rates/machine_section.hpp"
#include "inputs/data/run_section.hpp"
#include "layers/mixers/kinds.hpp"
#include "layers/step/step.hpp"
#include "offload/offload_section.hpp"
#include "offload/saved_tensors.hpp"
#include "offload/summary.hpp"
#include "results/format.hpp"

namespace stowage::drivers {
namespace {

using execution::Decision;
using execution::Lifetime;
using execution::Region;
using execution::Step;

const char* text(Decision decision) {
  switch (decision) {
    case Decision::keep:
      return "stays";
    case Decision::offload:
      return "leaves";
    case Decision::recompute:
      return "computed again";
  }
  return "?";
}

/// The program that is shown: of the first class of room for experts that of the most documents.
const forecast::TrainerPlan::Training& shown(const forecast::TrainerPlan& plan) {
  return *plan.training().back();
}

std::string module_text(const std::vector<offload::ModuleSummary>& modules, bool fused_mixer,
                        bool timed) {
  std::string text = fmt::format(
      "# saved tensors by module\n  {:<15}{:>9}{:>10}{:>10}{:>10}{:>8}{:>9}"
      "{:>9}{:>9}  {}\n",
      "module", "GiB", "leaves", "again", "in grads", "copies", "d2h ms", "h2d ms", "wait ms",
      "because");
  for (const offload::ModuleSummary& m : modules) {
    std::string reasons;
    for (const offload::Reason reason : m.reasons)
      reasons += fmt::format("{}{}", reasons.empty() ? "" : ", ", offload::text(reason));
    text += fmt::format(
        "  {:<15}{:>9.3f}{:>10.3f}{:>10.3f}{:>10.3f}{:>8}{:>9}{:>9}{:>9}  {}\n", m.module,
        forecast::gib(m.bytes), forecast::gib(m.offloaded), forecast::gib(m.recomputed),
        forecast::gib(m.in_gradient_memory), m.copies, forecast::milliseconds(timed, m.d2h_s),
        forecast::milliseconds(timed, m.h2d_s), forecast::milliseconds(timed, m.waited_s), reasons);
  }
  if (fused_mixer)
    text += fmt::format("  {:<15}{:>9.3f}  nothing saved: made again inside the fused mixer\n",
                        "mamba_conv", 0.0);
  return text;
}

std::string tensors_text(const execution::Program& program, const offload::Choice& choice) {
  std::string text = "# every saved tensor, in the order of forward\n";
  for (const offload::SavedTensor& saved : offload::find_saved_tensors(program)) {
    const execution::TensorInfo& info = program.info(saved.tensor);
    const int id = saved.tensor.id;
    text += fmt::format("  {:<40}{:<16}{:>14} B  {:<15}{}\n", info.name, info.module, info.bytes(),
                        drivers::text(choice.decisions[id]), offload::text(choice.reasons[id]));
  }
  return text;
}

std::string time_text(const forecast::TrainerPlan& run, const offload::Prediction& prediction,
                      const std::string& machine) {
  const execution::Program& program = shown(run).recorded.program;
  const execution::Plan& plan = shown(run).plan;
  const offload::Rates& rates = run.options().planner.rates;
  double again_s = 0;
  std::size_t out = 0;
  long reruns = 0;
  for (const execution::StepRange& section : plan.sections)
    for (int i = section.begin; i < section.end; ++i) {
      const Step& step = plan.steps[i];
      if (step.what == Step::What::rerun) {
        again_s += section.repeat * rates.time_s(program, step.op);
        reruns += section.repeat;
      }
      if (step.what != Step::What::copy_out) continue;
      out += static_cast<std::size_t>(section.repeat) *
             offload::moved_bytes(program, plan.places[step.places[0]]);
    }
  std::string text = fmt::format("# predicted time{}\n", machine.empty() ? "" : " on " + machine);
  const auto row = [&](std::string_view what, double time_s, const std::string& note) {
    text += fmt::format("  {:<28} {:>12.3f} ms  {}\n", what, 1e3 * time_s, note);
  };
  const double step_s = run.step_s(shown(run));
  row("step", step_s, "");
  if (run.expected().pipeline)
    row("waiting for other stages", step_s - plan.time_s,
        "if the policy makes their passes as much longer");
  row("waiting for copies", plan.exposed_s, "");
  row("computing again", again_s, fmt::format("{} reruns", reruns));
  row("copying to the host", rates.d2h_s(out), fmt::format("{:.3f} GiB", forecast::gib(out)));
  row("copying back", rates.h2d_s(out), "");
  for (const auto& [queue, exposure] : forecast::predicted_exposure(plan, prediction))
    row(queue == forecast::kAllGroups ? "communicating" : "  " + queue, exposure.busy_s,
        fmt::format("{:.3f} ms of it exposed, {:.0f} % hidden", 1e3 * exposure.exposed_s,
                    100 * (1 - exposure.exposed_s / std::max(exposure.busy_s, 1e-12))));
  return text;
}

/// What is launched as graphs, and how many of them fork branches that they end with.
std::string graphs_text(const execution::Plan& plan) {
  if (plan.segments.empty()) return {};
  int with_copies = 0, with_collectives = 0;
  for (const execution::Segment& segment : plan.segments) {
    bool copies = false, collectives = false;
    for (int i = segment.begin; i < segment.end; ++i) {
      const Step& step = plan.steps[i];
      copies |= execution::is_copy(step);
      collectives |= plan.queues[step.queue].lane == execution::Lane::comm;
    }
    with_copies += copies;
    with_collectives += collectives;
  }
  return fmt::format("# graphs\n  {} graphs; copies inside {}, collectives inside {} of them\n",
                     plan.segments.size(), with_copies, with_collectives);
}

/// The programs of a run, if it has several: by documents of a microbatch, by room for rows of a
/// rank's experts if ranks share them, and the evaluation.
std::string programs_text(const forecast::TrainerPlan& run, bool timed) {
  if (run.programs().size() == 1) return {};
  std::string text = fmt::format("# programs, which share memory\n  {:<46}{:>12}{:>12}{:>12}\n", "",
                                 "transient", "pinned", "ms");
  const auto row = [&](const std::string& what, const execution::Plan& plan, double time_s) {
    const auto bytes = [&](Region region) {
      return results::quantity(static_cast<double>(plan.bytes[static_cast<int>(region)]), "B");
    };
    text += fmt::format("  {:<46}{:>12}{:>12}{:>12}{}\n", what, bytes(Region::transient),
                        bytes(Region::host), forecast::milliseconds(timed, time_s),
                        &plan == &shown(run).plan ? "  shown above" : "");
  };
  const auto documents = [](std::int64_t count) {
    return fmt::format("{} document{}", count, count == 1 ? "" : "s");
  };
  for (int i = 0; i < run.capacity_classes(); ++i)
    for (const auto& training : run.training(i)) {
      const layers::TrainingProgram& recorded = training->recorded;
      std::string what = "training, " + documents(recorded.shape.capacity);
      if (recorded.expert_rows) what += fmt::format(", {} rows", recorded.expert_capacity.rows);
      if (recorded.expert_capacity.slots > 0)
        what += fmt::format(", {} slots", recorded.expert_capacity.slots);
      row(what, training->plan, run.step_s(*training));
    }
  for (const auto& evaluation : run.evaluation())
    row("evaluation, " + documents(evaluation->recorded.shape.capacity), evaluation->plan,
        evaluation->plan.time_s);
  if (const auto* exchange = run.ema_exchange())
    row("exchange of averages and weights", exchange->plan, exchange->plan.time_s);
  if (const auto* norms = run.weight_norms())
    row("norms of weights", norms->plan, norms->plan.time_s);
  return text;
}

/// What the exchanges of a kind of layer are expected to take, and which of them the plan has.
/// @param all_to_all which of them the deck calls so
template <class Forecast>
std::string exchange_text(const std::string& who, const std::optional<Forecast>& forecast,
                          typename Forecast::Exchange all_to_all, bool timed) {
  if (!forecast) return {};
  std::string text = fmt::format(
      "# {}: one layer and microbatch, forward and backward\n  {:<11}{:>12}{:>13}{:>15}\n", who,
      "exchange", "compute ms", "exchange ms", "exchanged GiB");
  for (const auto& form : forecast->forms)
    text += fmt::format("  {:<11}{:>12}{:>13}{:>15.3f}{}\n",
                        form.exchange == all_to_all ? "all_to_all" : "all_gather",
                        forecast::milliseconds(timed, form.compute_s),
                        forecast::milliseconds(timed, form.exchange_s), forecast::gib(form.bytes),
                        form.exchange == forecast->chosen ? "  taken" : "");
  return text;
}

std::string exchanges_text(const forecast::TrainerPlan& plan, bool timed) {
  const parallel::Ranks& ranks = plan.options().sharing.ranks;
  return exchange_text(fmt::format("attention over {} context ranks",
                                   ranks.group(parallel::Group::context).size()),
                       plan.expected().exchange, forecast::ExchangeForecast::Exchange::heads,
                       timed) +
         exchange_text(
             fmt::format("experts over {} ranks", ranks.group(parallel::Group::experts).size()),
             plan.expected().expert_exchange, forecast::ExpertForecast::Exchange::slots, timed);
}

/// Figures of a plan. @param step_s 0: no time is predicted
std::string json_line(const inputs::Deck& deck, const forecast::TrainerPlan& run,
                      std::size_t device_bytes, bool fits, const forecast::ModelSize& model,
                      const forecast::TrainingCost* cost) {
  nlohmann::ordered_json json = {{"event", "plan"},
                                 {"time", results::utc_now()},
                                 {"deck", inputs::read(deck, &inputs::RunConfig::name)},
                                 {"machine", inputs::read(deck, &forecast::MachineConfig::name)},
                                 {"ranks", run.options().sharing.ranks.shape.ranks()}};
  model.add_to(json);
  json["device_bytes"] = device_bytes;
  json["host_bytes"] = run.host_bytes();
  json["fits"] = fits;
  if (cost != nullptr) {
    json["step_s"] = run.step_s(shown(run));
    cost->add_to(json);
  }
  return json.dump();
}

bool has_fused_mixer(const layers::ModelConfig& model) {
  return model.mamba.form == layers::ModelConfig::Mamba::Form::fused &&
         layers::kinds::mamba.in(model.letters());
}

std::string title(const inputs::Deck& deck, const forecast::TrainerPlan& run, int stage) {
  const forecast::TrainerOptions& options = run.options();
  const layers::Model& model = run.model();
  const int stages = options.sharing.ranks.shape[parallel::Axis::pipeline];
  std::string what;
  if (stages > 1)
    what = fmt::format("{} {} of {} with {}{}{}, {} microbatches, cut {}: {}, ",
                       model.stages().size() > 1 ? "pipeline rank" : "stage", stage, stages,
                       layers::layers_text(model.stages()),
                       model.has_embedding() ? " and the embedding" : "",
                       model.has_head() ? " and the head" : "", options.step.microbatches,
                       run.expected().pipeline->cut_for, run.expected().pipeline->pattern);
  return fmt::format(
      "# plan of {}: {} layers, {}{} tokens a step and rank, offload.policy {}, {} ops, proven\n",
      inputs::read(deck, &inputs::RunConfig::name), options.model.layers(), what,
      options.step.tokens * std::int64_t{options.step.microbatches},
      deck.get<std::string>(inputs::key(&offload::OffloadConfig::kind)),
      shown(run).recorded.program.ops().size());
}

}  // namespace

StageOf parse_stage(const std::string& text) {
  StageOf stage{-1, 0};
  char rest = 0;
  const int read = std::sscanf(text.c_str(), "%d/%d%c", &stage.stage, &stage.stages, &rest);
  if (read != 2 || stage.stage < 0 || stage.stage >= stage.stages)
    execution::throw_usage("--stage {}: must be p/P with 0 <= p < P", text);
  return stage;
}

PlanReport plan_report(const inputs::Deck& deck, const PlanOptions& options) {
  const forecast::PlannedData data = forecast::planned_data(deck);
  const forecast::TrainerPlan run(rank_options(deck, data, options.stage));
  run.require_proven();
  const auto& [recorded, choice, plan] = shown(run);
  const execution::Program& program = recorded.program;
  const offload::Prediction prediction =
      offload::predict(program, plan, run.options().planner.rates);
  const bool timed = forecast::knows_rates(deck);
  const forecast::ModelSize model = forecast::model_size(deck);
  std::string text = title(deck, run, options.stage);
  text += data.text() + model.text();
  const forecast::CheckpointMemory saving = planned_checkpoints(deck, run);
  text += memory_table(run, saving);
  const std::size_t device_bytes =
      run.layout().bytes() + run.transient_bytes() + saving.device_bytes();
  const forecast::MemoryFit fit = forecast::memory_fit(deck, device_bytes);
  text += fit.text;
  if (!fit.fits) text += forecast::remedies_text(deck, data, options.stage);
  if (const auto& pipeline = run.expected().pipeline; pipeline && pipeline->delayed)
    text += fmt::format("# zero bubble: {}\n", delayed_text(*pipeline->delayed, options.stage));
  if (const auto price = forecast::tree_price(run))
    text += fmt::format("# same bits on any ranks: {}\n", price->text(timed));
  const int columns = static_cast<int>(options.columns);
  const auto memory =
      static_cast<std::size_t>(inputs::read(deck, &forecast::MachineConfig::device_memory_bytes));
  text += homes_picture(run, saving, memory, columns);
  text += "# transient memory over one step\n";
  text += memory_picture(program, plan, prediction, columns, 20);
  text += module_text(offload::summarize(program, plan, choice, prediction),
                      has_fused_mixer(run.options().model), timed);
  if (options.tensors) text += tensors_text(program, choice);
  text += graphs_text(plan);
  std::optional<forecast::TrainingCost> cost;
  if (timed) {
    const int ranks = run.options().sharing.ranks.shape.ranks();
    cost = forecast::training_cost(deck, model, ranks, run.step_s(shown(run)), options.tokens);
    text += time_text(run, prediction, inputs::read(deck, &forecast::MachineConfig::name));
    text += fmt::format("# {} rank{}: {}\n{}", ranks, ranks == 1 ? "" : "s", cost->speed_text(),
                        cost->tokens_text());
  } else {
    text +=
        "# no time is predicted: the deck has no rates of a machine (--machine NAME names "
        "one);\n# what is moved or computed again is chosen by the rates of one H200\n";
  }
  return {text + exchanges_text(run, timed) + programs_text(run, timed),
          json_line(deck, run, device_bytes, fit.fits, model, cost ? &*cost : nullptr), fit.fits};
}

}  // namespace stowage::drivers
