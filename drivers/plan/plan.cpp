#include "drivers/plan/plan.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>

#include "drivers/common/checkpoint_memory.hpp"
#include "drivers/common/exposure.hpp"
#include "drivers/common/planned_rank.hpp"
#include "drivers/plan/picture.hpp"
#include "execution/verifier.hpp"
#include "layers/step/step.hpp"
#include "offload/cargo.hpp"
#include "offload/summary.hpp"

namespace stowage::drivers {
namespace {

using execution::Decision;
using execution::Lifetime;
using execution::Region;
using execution::Step;

double gib(std::size_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

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

/// A planned program, however it was made.
struct Subject {
  std::string title;
  const execution::Program& program;
  const execution::PersistentLayout& layout;
  const execution::Plan& plan;
  const offload::Choice& choice;
  const offload::Rates& rates;
  bool fused_mixer;  ///< of a model that has Mamba-2 layers
  CheckpointMemory saving;
};

std::string memory_text(const Subject& subject) {
  std::string text = "# memory of one rank\n";
  const auto row = [&](std::string_view what, std::size_t bytes) {
    text += fmt::format("  {:<28} {:>14} B {:>10.3f} GiB\n", what, bytes, gib(bytes));
  };
  const execution::Plan& plan = subject.plan;
  row("parameters", subject.layout.bytes(Lifetime::parameter));
  row("gradients", subject.layout.bytes(Lifetime::gradient));
  row("optimizer states", subject.layout.bytes(Lifetime::optimizer_state));
  row("transient", plan.bytes[static_cast<int>(Region::transient)]);
  row("  live at once, at most", plan.live_bytes);
  if (const std::size_t bytes = offload::berth_bytes(subject.program, plan); bytes > 0)
    row("saved, in gradients' memory", bytes);
  const CheckpointMemory& saving = subject.saving;
  for (const auto& [what, bytes] : saving.device_rows()) row(what, bytes);
  row("all device memory", plan.device_bytes() + saving.device_bytes());
  row("pinned host memory", plan.bytes[static_cast<int>(Region::host)] + saving.host_bytes());
  for (const auto& [what, bytes] : saving.host_rows()) row(what, bytes);
  return text;
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
    const auto id = static_cast<std::size_t>(cargo.tensor.id);
    text += fmt::format("  {:<40}{:<16}{:>14} B  {:<15}{}\n", info.name, info.module, info.bytes(),
                        drivers::text(choice.decisions[id]), offload::text(choice.reasons[id]));
  }
  return text;
}

std::string time_text(const execution::Program& program, const execution::Plan& plan,
                      const offload::Rates& rates, const offload::Prediction& prediction) {
  double again_s = 0;
  std::size_t out = 0;
  long reruns = 0;
  for (const execution::StepRange& section : plan.sections)
    for (int i = section.begin; i < section.end; ++i) {
      const Step& step = plan.steps[static_cast<std::size_t>(i)];
      if (step.what == Step::What::rerun) {
        again_s += section.repeat * rates.time_s(program, step.op);
        reruns += section.repeat;
      }
      if (step.what == Step::What::copy_out)
        out += static_cast<std::size_t>(section.repeat) *
               plan.places[static_cast<std::size_t>(step.places[0])].bytes;
    }
  std::string text = "# predicted time\n";
  const auto row = [&](std::string_view what, double time_s, const std::string& note) {
    text += fmt::format("  {:<28} {:>12.3f} ms  {}\n", what, 1e3 * time_s, note);
  };
  row("step", plan.time_s, "");
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
std::string graphs_text(const Subject& subject) {
  const execution::Plan& plan = subject.plan;
  if (plan.segments.empty()) return {};
  int with_copies = 0, with_collectives = 0;
  for (const execution::Segment& segment : plan.segments) {
    bool copies = false, collectives = false;
    for (int i = segment.begin; i < segment.end; ++i) {
      const Step& step = plan.steps[static_cast<std::size_t>(i)];
      copies |= step.what == Step::What::copy_out || step.what == Step::What::copy_in;
      collectives |=
          plan.queues[static_cast<std::size_t>(step.queue)].lane == execution::Lane::comm;
    }
    with_copies += copies;
    with_collectives += collectives;
  }
  return fmt::format("# graphs\n  {} graphs; copies inside {}, collectives inside {} of them\n",
                     plan.segments.size(), with_copies, with_collectives);
}

std::string text_of(const Subject& subject, const PlanOptions& options) {
  const execution::PlannedProgram planned{&subject.program, &subject.plan};
  execution::require_proven({&planned, 1});
  const offload::Prediction prediction =
      offload::predict(subject.program, subject.plan, subject.rates);
  std::string text =
      fmt::format("{}, {} steps, proven\n", subject.title, subject.plan.steps.size());
  text += memory_text(subject);
  text += "# transient memory over one step\n";
  text += memory_picture(subject.program, subject.plan, prediction,
                         static_cast<int>(options.columns), 20);
  text += module_text(offload::summarize(subject.program, subject.plan, subject.choice, prediction),
                      subject.fused_mixer);
  if (options.tensors) text += tensors_text(subject.program, subject.choice);
  text += graphs_text(subject);
  return text + time_text(subject.program, subject.plan, subject.rates, prediction);
}

/// The programs of a run, if it has several: they share one region of memory.
std::string capacities_text(const layers::TrainerPlan& plan) {
  if (plan.training().size() == 1) return {};
  plan.require_proven();
  std::string text = "# programs by documents of a microbatch; the largest is the one above\n";
  for (const auto& training : plan.training())
    text += fmt::format("  {:>8} documents {:>10.3f} GiB transient {:>10.3f} ms, {} graphs\n",
                        training->recorded.shape.capacity,
                        gib(training->plan.bytes[static_cast<int>(Region::transient)]),
                        1e3 * training->plan.time_s, training->plan.segments.size());
  return text;
}

/// The classes of room for rows of experts, if ranks share them.
std::string classes_text(const layers::TrainerPlan& plan) {
  if (!plan.training().front()->recorded.expert_rows) return {};
  plan.require_proven();
  std::string text =
      "# programs by room for rows of a rank's experts; the smallest is the one above\n";
  for (int i = 0; i < plan.expert_classes(); ++i) {
    const auto& training = *plan.training(i).back();
    const kernels::ExpertRoom& room = training.recorded.expert_room;
    const std::string slots = room.slots > 0 ? fmt::format(" {:>10} slots", room.slots) : "";
    text += fmt::format(
        "  {:>10} rows{} {:>10.3f} GiB transient {:>10.3f} GiB pinned {:>10.3f} ms\n", room.rows,
        slots, gib(training.plan.bytes[static_cast<int>(Region::transient)]),
        gib(training.plan.bytes[static_cast<int>(Region::host)]), 1e3 * training.plan.time_s);
  }
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
                        1e3 * form.compute_s, 1e3 * form.exchange_s, form.bytes / (1 << 30),
                        form.exchange == forecast->chosen ? "  taken" : "");
  return text;
}

std::string exchanges_text(const layers::TrainerPlan& plan) {
  const parallel::Ranks& ranks = plan.options().sharing.ranks;
  return exchange_text(fmt::format("attention over {} context ranks",
                                   ranks.group(parallel::Group::context).size()),
                       plan.expected().exchange, layers::ExchangeForecast::Exchange::heads) +
         exchange_text(
             fmt::format("experts over {} ranks", ranks.group(parallel::Group::experts).size()),
             plan.expected().expert_exchange, layers::ExpertForecast::Exchange::slots);
}

bool has_fused_mixer(const layers::ModelConfig& model) {
  return model.mamba.form == layers::ModelConfig::Mamba::Form::fused &&
         model.pattern.find('M') != std::string::npos;
}

std::string title(const inputs::Deck& deck, int layers, const std::string& what) {
  return fmt::format("# plan of {}: {} layers, {}, offload.policy {}",
                     deck.get<std::string>("run.name"), layers, what,
                     deck.get<std::string>("offload.policy"));
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
  const layers::TrainerPlan plan(rank_options(deck, options.stage));
  const auto& training = *plan.training().back();
  const layers::TrainerOptions& trainer = plan.options();
  const std::int64_t tokens = trainer.step.tokens * std::int64_t{trainer.step.microbatches};
  const layers::Model& model = plan.model();
  const int stages = trainer.sharing.ranks.shape[parallel::Axis::pipeline];
  std::string what = fmt::format("{} tokens a step and rank", tokens);
  if (stages > 1)
    what = fmt::format("{} {} of {} with {}{}{}, {} microbatches",
                       model.stages().size() > 1 ? "pipeline rank" : "stage", options.stage, stages,
                       layers::layers_text(model.stages()),
                       model.has_embedding() ? " and the embedding" : "",
                       model.has_head() ? " and the head" : "", trainer.step.microbatches) +
           fmt::format(", cut {}: {}, ", plan.expected().prospect->cut_for,
                       plan.expected().prospect->pattern) +
           what;
  const std::string text =
      text_of({title(deck, trainer.model.layers(), what), training.recorded.program, plan.layout(),
               training.plan, training.choice, trainer.planner.rates,
               has_fused_mixer(trainer.model), planned_checkpoints(deck, plan)},
              options);
  return text + exchanges_text(plan) + capacities_text(plan) + classes_text(plan);
}

}  // namespace stowage::drivers
