#include "drivers/plan/plan.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "drivers/common/options.hpp"
#include "drivers/plan/picture.hpp"
#include "inputs/deck/check.hpp"
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

std::string memory_text(const layers::TrainerPlan& plan) {
  std::string text = "# memory of one rank\n";
  const auto row = [&](std::string_view what, std::size_t bytes) {
    text += fmt::format("  {:<28} {:>14} B {:>10.3f} GiB\n", what, bytes, gib(bytes));
  };
  row("parameters", plan.layout().bytes(Lifetime::parameter));
  row("gradients", plan.layout().bytes(Lifetime::gradient));
  row("optimizer states", plan.layout().bytes(Lifetime::optimizer_state));
  row("transient", plan.transient_bytes());
  row("all device memory", plan.layout().bytes() + plan.transient_bytes());
  row("pinned host memory", plan.host_bytes());
  return text;
}

std::string module_text(const std::vector<offload::ModuleSummary>& modules) {
  std::string text = fmt::format(
      "# saved tensors by module\n  {:<15}{:>9}{:>10}{:>10}{:>8}{:>9}"
      "{:>9}{:>9}  {}\n",
      "module", "GiB", "leaves", "again", "copies", "d2h ms", "h2d ms", "wait ms", "because");
  for (const offload::ModuleSummary& m : modules) {
    std::string reasons;
    for (const offload::Reason reason : m.reasons)
      reasons += fmt::format("{}{}", reasons.empty() ? "" : ", ", offload::text(reason));
    text += fmt::format("  {:<15}{:>9.3f}{:>10.3f}{:>10.3f}{:>8}{:>9.3f}{:>9.3f}{:>9.3f}  {}\n",
                        m.module, gib(m.bytes), gib(m.offloaded), gib(m.recomputed), m.copies,
                        1e3 * m.d2h_s, 1e3 * m.h2d_s, 1e3 * m.waited_s, reasons);
  }
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
                      const offload::Rates& rates) {
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
  return text;
}

}  // namespace

std::string plan_text(const inputs::Deck& deck, const PlanOptions& options) {
  const std::int64_t ranks = std::max<std::int64_t>(1, deck.get<std::int64_t>("parallel.data"));
  layers::TrainerOptions trainer =
      trainer_options(deck, inputs::check_ranks(deck, ranks), static_cast<int>(ranks));
  const std::int64_t documents = deck.get<std::int64_t>("data.max_documents");
  trainer.capacities = {std::max(documents, deck.get<std::int64_t>("train.micro_batch_size"))};
  trainer.evaluation_microbatches = 0;
  const layers::TrainerPlan plan(std::move(trainer));
  plan.require_proven();
  const auto& training = *plan.training().back();
  const execution::Program& program = training.recorded.program;
  const offload::Rates& rates = plan.options().planner.rates;
  const offload::Prediction prediction = offload::predict(program, training.plan, rates);
  std::string text = fmt::format(
      "# plan of {}: {} layers, {} tokens a step and rank, offload.policy {}, {} steps, proven\n",
      deck.get<std::string>("run.name"), plan.options().model.layers(),
      plan.options().step.tokens * std::int64_t{plan.options().step.microbatches},
      deck.get<std::string>("offload.policy"), training.plan.steps.size());
  text += memory_text(plan);
  text += "# transient memory over one step\n";
  text += memory_picture(program, training.plan, prediction, static_cast<int>(options.columns), 20);
  text += module_text(offload::summarize(program, training.plan, training.choice, prediction));
  if (options.tensors) text += tensors_text(program, training.choice);
  return text + time_text(program, training.plan, rates);
}

}  // namespace stowage::drivers
