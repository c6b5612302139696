#include "run/record/report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "execution/op_kind.hpp"
#include "forecast/plan/delayed_text.hpp"
#include "forecast/plan/memory_table.hpp"
#include "forecast/plan/tree_price.hpp"
#include "forecast/rates/machine_section.hpp"
#include "inputs/data/run_section.hpp"
#include "offload/lifetimes.hpp"
#include "run/record/profile.hpp"
#include "run/record/result_config.hpp"

namespace stowage::run {
namespace {

using execution::Lifetime;

/// Bytes of live transient tensors by module at the fullest moment of a plan.
std::map<std::string, std::size_t> peak_by_module(const execution::Program& program,
                                                  const execution::Plan& plan) {
  const auto ranges = offload::live_ranges(plan);
  const auto live = offload::live_bytes_by_step(plan, ranges, execution::Region::transient,
                                                execution::kAlignment);
  const auto fullest = static_cast<int>(std::max_element(live.begin(), live.end()) - live.begin());
  std::map<std::string, std::size_t> bytes;
  for (const offload::LiveRange& range : ranges) {
    const execution::Place& place = plan.places[range.place];
    if (place.region != execution::Region::transient || !range.lives_at(fullest)) continue;
    const execution::TensorInfo& info = program.info(place.tensor);
    const std::string key = info.lifetime != Lifetime::saved ? std::string(name(info.lifetime))
                            : info.module.empty()            ? "saved (other)"
                                                             : "saved " + info.module;
    bytes[key] += execution::align_up(place.bytes);
  }
  return bytes;
}

/// Of a step; ranks that share sequences share their tokens.
std::int64_t tokens_per_rank(const forecast::TrainerPlan& plan) {
  const parallel::Ranks& ranks = plan.options().sharing.ranks;
  return plan.options().step.tokens * plan.options().step.microbatches * ranks.sequences().parts /
         ranks.size();
}

}  // namespace

std::int64_t parameter_count(const forecast::TrainerPlan& plan) {
  std::int64_t count = 0;
  for (const layers::Parameter& p : plan.model().whole_parameters()) count += p.global_elements();
  return count;
}

double part_of_recorded(const forecast::TrainerPlan& plan, double pairs) {
  const layers::StepShape& shape = plan.training().back()->recorded.shape;
  return pairs / (static_cast<double>(shape.attention_pairs()) * shape.microbatches);
}

double executed_flops(const forecast::TrainerPlan& plan, double pairs) {
  const layers::TrainingProgram& recorded = plan.training().back()->recorded;
  double attention = 0;
  for (const execution::Section& section : recorded.program.sections())
    for (int i = section.begin; i < section.end; ++i) {
      const execution::Op& op = recorded.program.ops()[i];
      if (is_over_pairs(execution::op_kind(op.name))) attention += section.repeat * op.cost.flops;
    }
  return recorded.program.cost().flops - attention * (1 - part_of_recorded(plan, pairs));
}

results::Fields facts(const inputs::Deck& deck, const std::string& backend,
                      forecast::TrainerPlan& plan, const forecast::CheckpointMemory& saving) {
  const auto& training = *plan.training().back();
  results::Fields fields{
      {"model", plan.options().model.pattern},
      {"parameters", parameter_count(plan)},
      {"backend", backend},
      {"grid", grid_text(deck, plan.options().sharing.ranks.size())},
      {"dtype", deck.get<std::string>(inputs::key(&inputs::TrainConfig::dtype))},
      {"tokens/step/rank", tokens_per_rank(plan)},
      {"ops/step", static_cast<std::int64_t>(training.recorded.program.ops().size())},
      {"TFLOP/step/rank", training.recorded.program.cost().flops / 1e12},
      {"persistent MiB", static_cast<double>(plan.layout().bytes()) / (1 << 20)},
      {"transient MiB", static_cast<double>(plan.transient_bytes()) / (1 << 20)},
      {"host MiB", static_cast<double>(plan.host_bytes() + saving.host_bytes()) / (1 << 20)}};
  if (plan.expected().pipeline)
    fields.insert(fields.begin() + 1, {"cut", plan.expected().pipeline->cut_for});
  if (plan.expected().pipeline && plan.expected().pipeline->delayed)
    fields.push_back({"zero bubble", delayed_text(*plan.expected().pipeline->delayed)});
  if (const auto price = forecast::tree_price(plan))
    fields.push_back(
        {"same bits", price->text(!inputs::read(deck, &forecast::MachineConfig::name).empty())});
  if (saving.saves) fields.push_back({"copy of the state", saving.text()});
  // A prediction is worth something for the machine that the deck describes.
  if (inputs::read(deck, &forecast::MachineConfig::name).empty()) return fields;
  if (plan.expected().pipeline) {
    fields.push_back({"predicted pipeline ms", 1e3 * plan.expected().pipeline->timeline.time_s});
    fields.push_back({"predicted bubble", plan.expected().pipeline->timeline.bubble()});
  }
  fields.push_back({"predicted step ms", 1e3 * training.plan.time_s});
  fields.push_back({"predicted wait ms", 1e3 * training.plan.exposed_s});
  return fields;
}

std::string dry_run_text(const inputs::Deck& deck, forecast::TrainerPlan& plan) {
  const auto& training = *plan.training().back();
  const std::int64_t tokens = tokens_per_rank(plan);
  std::string text =
      fmt::format("# dry run of {}: {} layers, {:.4g} M parameters, {} tokens a step and rank\n",
                  inputs::read(deck, &inputs::RunConfig::name), plan.options().model.layers(),
                  static_cast<double>(parameter_count(plan)) / 1e6, tokens);
  const parallel::RankGroup& pipeline =
      plan.options().sharing.ranks.group(parallel::Group::pipeline);
  const bool several = plan.model().stages().size() > 1;
  if (pipeline.size() > 1)
    text += fmt::format("# {} {} of {}: {}\n", several ? "pipeline rank" : "stage", pipeline.rank(),
                        pipeline.size(), layers::layers_text(plan.model().stages()));
  text += memory_table(plan, planned_checkpoints(deck, plan));
  text += "# transient at its fullest, by module\n";
  for (const auto& [module, bytes] : peak_by_module(training.recorded.program, training.plan))
    text += forecast::memory_row(module, bytes);
  const execution::Cost cost = training.recorded.program.cost();
  text += fmt::format(
      "# one step: {} ops, {:.6g} TFLOP, at least {:.4g} GB through memory, {:.4g} GFLOP a token\n",
      training.recorded.program.ops().size(), cost.flops / 1e12, cost.bytes / 1e9,
      cost.flops / 1e9 / static_cast<double>(tokens));
  return text;
}

}  // namespace stowage::run
