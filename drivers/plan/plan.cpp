#include "drivers/plan/plan.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>

#include "drivers/common/delayed_text.hpp"
#include "drivers/common/exposure.hpp"
#include "drivers/common/memory_table.hpp"
#include "drivers/common/planned_rank.hpp"
#include "drivers/plan/picture.hpp"
#include "execution/verifier.hpp"
#include "layers/step/step.hpp"
#include "offload/cargo.hpp"
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
const training::TrainerPlan::Training& shown(const training::TrainerPlan& plan) {
  return *plan.training().back();
}

std::string module_text(const std::vector<offload::ModuleSummary>& modules, bool fused_mixer) {
  std::string text = fmt::format(
      "# saved tensors by module\n  {:<15}{:>9}{:>10}{:>10}{:>10}{:>8}{:>9}"
      "{:>9}{:>9}  {}\n",
      "module", "GiB", "leaves", "again", "berths", "copies", "d2h ms", "h2d ms", "wait ms",
      "because");
  for (const offload::ModuleSummary& m : modules) {
    std::string reasons;
    for (const offload::Reason reason : m.reasons)
      reasons += fmt::format("{}{}", reasons.empty() ? "" : ", ", offload::text(reason));
    text += fmt::format(
        "  {:<15}{:>9.3f}{:>10.3f}{:>10.3f}{:>10.3f}{:>8}{:>9.3f}{:>9.3f}{:>9.3f}  {}\n", m.module,
        gib(m.bytes), gib(m.offloaded), gib(m.recomputed), gib(m.at_berths), m.copies,
        1e3 * m.d2h_s, 1e3 * m.h2d_s, 1e3 * m.waited_s, reasons);
  }
  if (fused_mixer)
    text += fmt::format("  {:<15}{:>9.3f}  nothing saved: made again inside the fused mixer\n",
                        "mamba_conv", 0.0);
  return text;
}

std::string tensors_text(const execution::Program& program, const offload::Choice& choice) {
  std::string text = "# every saved tensor, in the order of forward\n";
  for (const offload::Cargo& cargo : offload::find_cargo(program)) {
    const execution::TensorInfo& info = program.info(cargo.tensor);
    const int id = cargo.tensor.id;
    text += fmt::format("  {:<40}{:<16}{:>14} B  {:<15}{}\n", info.name, info.module, info.bytes(),
                        drivers::text(choice.decisions[id]), offload::text(choice.reasons[id]));
  }
  return text;
}

std::string time_text(const training::TrainerPlan& run, const offload::Prediction& prediction) {
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
      const execution::Place& from = plan.places[step.places[0]];
      out += static_cast<std::size_t>(section.repeat) *
             program.info(from.tensor).moved_bytes(from.buffer);
    }
  std::string text = "# predicted time\n";
  const auto row = [&](std::string_view what, double time_s, const std::string& note) {
    text += fmt::format("  {:<28} {:>12.3f} ms  {}\n", what, 1e3 * time_s, note);
  };
  const double step_s = run.step_s(shown(run));
  row("step", step_s, "");
  if (run.expected().prospect)
    row("waiting for other stages", step_s - plan.time_s,
        "if the policy makes their passes as much longer");
  row("waiting for copies", plan.exposed_s, "");
  row("computing again", again_s, fmt::format("{} reruns", reruns));
  row("copying to the host", rates.d2h_s(out), fmt::format("{:.3f} GiB", gib(out)));
  row("copying back", rates.h2d_s(out), "");
  for (const auto& [queue, exposure] : predicted_exposure(plan, prediction))
    row(queue == kAllGroups ? "communicating" : "  " + queue, exposure.busy_s,
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
std::string programs_text(const training::TrainerPlan& run) {
  if (run.programs().size() == 1) return {};
  std::string text = fmt::format("# programs, which share memory\n  {:<46}{:>12}{:>12}{:>12}\n", "",
                                 "transient", "pinned", "ms");
  const auto row = [&](const std::string& what, const execution::Plan& plan, double time_s) {
    const auto bytes = [&](Region region) {
      return results::quantity(static_cast<double>(plan.bytes[static_cast<int>(region)]), "B");
    };
    text += fmt::format("  {:<46}{:>12}{:>12}{:>12.3f}{}\n", what, bytes(Region::transient),
                        bytes(Region::host), 1e3 * time_s,
                        &plan == &shown(run).plan ? "  shown above" : "");
  };
  const auto documents = [](std::int64_t count) {
    return fmt::format("{} document{}", count, count == 1 ? "" : "s");
  };
  for (int i = 0; i < run.expert_classes(); ++i)
    for (const auto& training : run.training(i)) {
      const layers::TrainingProgram& recorded = training->recorded;
      std::string what = "training, " + documents(recorded.shape.capacity);
      if (recorded.expert_rows) what += fmt::format(", {} rows", recorded.expert_room.rows);
      if (recorded.expert_room.slots > 0)
        what += fmt::format(", {} slots", recorded.expert_room.slots);
      row(what, training->plan, run.step_s(*training));
    }
  for (const auto& evaluation : run.evaluation())
    row("evaluation, " + documents(evaluation->recorded.shape.capacity), evaluation->plan,
        evaluation->plan.time_s);
  return text;
}

/// What the exchanges of a kind of layer are expected to take, and which of them the plan has.
/// @param all_to_all which of them the deck calls so
template <class Forecast>
std::string exchange_text(const std::string& who, const std::optional<Forecast>& forecast,
                          typename Forecast::Exchange all_to_all) {
  if (!forecast) return {};
  std::string text = fmt::format(
      "# {}: one layer and microbatch, forward and backward\n  {:<11}{:>12}{:>13}{:>15}\n", who,
      "exchange", "compute ms", "exchange ms", "exchanged GiB");
  for (const auto& form : forecast->forms)
    text += fmt::format("  {:<11}{:>12.3f}{:>13.3f}{:>15.3f}{}\n",
                        form.exchange == all_to_all ? "all_to_all" : "all_gather",
                        1e3 * form.compute_s, 1e3 * form.exchange_s, gib(form.bytes),
                        form.exchange == forecast->chosen ? "  taken" : "");
  return text;
}

std::string exchanges_text(const training::TrainerPlan& plan) {
  const parallel::Ranks& ranks = plan.options().sharing.ranks;
  return exchange_text(fmt::format("attention over {} context ranks",
                                   ranks.group(parallel::Group::context).size()),
                       plan.expected().exchange, training::ExchangeForecast::Exchange::heads) +
         exchange_text(
             fmt::format("experts over {} ranks", ranks.group(parallel::Group::experts).size()),
             plan.expected().expert_exchange, training::ExpertForecast::Exchange::slots);
}

bool has_fused_mixer(const layers::ModelConfig& model) {
  return model.mamba.form == layers::ModelConfig::Mamba::Form::fused &&
         model.pattern.find('M') != std::string::npos;
}

std::string title(const inputs::Deck& deck, const training::TrainerPlan& run, int stage) {
  const training::TrainerOptions& options = run.options();
  const layers::Model& model = run.model();
  const int stages = options.sharing.ranks.shape[parallel::Axis::pipeline];
  std::string what;
  if (stages > 1)
    what = fmt::format("{} {} of {} with {}{}{}, {} microbatches, cut {}: {}, ",
                       model.stages().size() > 1 ? "pipeline rank" : "stage", stage, stages,
                       layers::layers_text(model.stages()),
                       model.has_embedding() ? " and the embedding" : "",
                       model.has_head() ? " and the head" : "", options.step.microbatches,
                       run.expected().prospect->cut_for, run.expected().prospect->pattern);
  return fmt::format(
      "# plan of {}: {} layers, {}{} tokens a step and rank, offload.policy {}, {} steps, proven\n",
      deck.get<std::string>("run.name"), options.model.layers(), what,
      options.step.tokens * std::int64_t{options.step.microbatches},
      deck.get<std::string>("offload.policy"), shown(run).plan.steps.size());
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

std::string plan_text(const inputs::Deck& deck, const PlanOptions& options) {
  const PlannedData data = planned_data(deck);
  const training::TrainerPlan run(rank_options(deck, data, options.stage));
  run.require_proven();
  const auto& [recorded, choice, plan] = shown(run);
  const execution::Program& program = recorded.program;
  const offload::Prediction prediction =
      offload::predict(program, plan, run.options().planner.rates);
  std::string text = title(deck, run, options.stage);
  text += data.text();
  text += memory_table(run, planned_checkpoints(deck, run));
  if (const auto& prospect = run.expected().prospect; prospect && prospect->delayed)
    text += fmt::format("# zero bubble: {}\n", delayed_text(*prospect->delayed, options.stage));
  text += "# transient memory over one step\n";
  text += memory_picture(program, plan, prediction, static_cast<int>(options.columns), 20);
  text += module_text(offload::summarize(program, plan, choice, prediction),
                      has_fused_mixer(run.options().model));
  if (options.tensors) text += tensors_text(program, choice);
  text += graphs_text(plan);
  text += time_text(run, prediction);
  return text + exchanges_text(run) + programs_text(run);
}

}  // namespace stowage::drivers
