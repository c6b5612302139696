#include "layers/step/step.hpp"

#include <algorithm>
#include <optional>

#include "kernels/elementwise/elementwise.hpp"
#include "kernels/moe/capacity.hpp"
#include "layers/mixers/experts.hpp"
#include "layers/mixers/router.hpp"
#include "layers/mixers/stream_squares.hpp"
#include "layers/schedule/pipeline.hpp"
#include "layers/state/gradient_sums.hpp"
#include "layers/step/own_norm.hpp"
#include "layers/step/update.hpp"

namespace stowage::layers {

using execution::Dtype;

namespace {

/// What the head tells of the next tokens, the loss first, by the same tree as gradients if there
/// is one.
std::vector<Tensor> told_by_head(Tensor loss, Tensor z_loss, Tensor source_losses = {}) {
  std::vector<Tensor> told = {loss};
  if (z_loss) told.push_back(z_loss);
  if (source_losses) told.push_back(source_losses);
  return told;
}

std::vector<Tensor> told_by_head(const TrainingProgram& step) {
  return told_by_head(step.loss, step.z_loss, step.source_losses);
}

void add_outputs(TrainingProgram& step, const Model& model, const OptimizerConfig& optimizer) {
  const Dtype accum = model.precision().accumulation();
  step.loss = step.program.output("loss", accum, {2});
  step.grad_norm = step.program.output("grad_norm", accum, {1});
  step.step_ok = step.program.output("step_ok", Dtype::int32, {1});
  if (model.config().z_loss_coeff > 0) step.z_loss = step.program.output(kZLoss, accum, {2});
  if (step.shape.sources > 0)
    step.source_losses =
        step.program.output(kSourceLosses, accum, {std::int64_t{2} * step.shape.sources});
  if (model.config().tells_stream)
    step.program.output(kStreamSquares, accum, {model.config().layers() + 1});
  if (optimizer.own_loss) step.own_loss = step.program.output("own_loss", accum, {2});
  if (optimizer.own_norm && model.ranks().size() > 1)
    step.own_norm = step.program.output("own_norm", accum, {1});
  if (model.has_router_losses())
    step.router_losses = step.program.output(kRouterLosses, accum, {2});
  for (int depth = 1; depth <= model.further_depths(); ++depth)
    step.mtp_losses.push_back(step.program.output(mtp_loss_name(depth), accum, {2}));
  if (model.shares_experts())
    step.expert_rows = step.program.output("expert_rows", Dtype::int32, {4});
}

PipelineShape pipeline_of(const Model& model) {
  return {model.ranks().group(parallel::Group::pipeline).size(),
          static_cast<int>(model.stages().size())};
}

/// This rank's passes of those of all ranks of its pipeline.
const RankPasses& own(const std::vector<RankPasses>& passes, const Model& model) {
  return passes[model.ranks().group(parallel::Group::pipeline).rank()];
}

RankPasses training_passes(const Model& model, int microbatches, const Sharing& sharing) {
  const PipelineShape pipeline = pipeline_of(model);
  if (pipeline.ranks == 1)
    return sharing.overlap_microbatches ? train_side_by_side(microbatches)
                                        : train_one_by_one(microbatches, sharing.leaf_microbatches);
  return own(train_in_pipeline(pipeline, microbatches, sharing.schedule, sharing.stage_times,
                               sharing.delayed_weights),
             model);
}

RankPasses evaluation_passes(const Model& model, int microbatches, const Sharing& sharing) {
  const PipelineShape pipeline = pipeline_of(model);
  if (pipeline.ranks == 1) return evaluate_one_by_one(microbatches);
  return own(evaluate_in_pipeline(pipeline, microbatches, sharing.stage_times), model);
}

/// Only the last stage computes losses: ranks without it add nothing to the sum over ranks.
void clear_losses(Recorder& recorder, const Model& model, const std::vector<Tensor>& losses) {
  if (model.has_head()) return;
  for (const Tensor loss : losses)
    recorder.clear("no_" + recorder.program().info(loss).name, write(loss));
}

void begin(Recorder& recorder, const Model& model, const TrainingProgram& step, bool apart) {
  recorder.set_prefix("step");
  recorder.copy("ok", read(step.go_on), write(step.step_ok));
  if (step.router_losses && !apart) recorder.clear("router_losses", write(step.router_losses));
  if (const Tensor squares = step.program.find(kStreamSquares))
    recorder.clear("no_stream_squares", write(squares));
  if (step.expert_rows) {
    const Tensor demand = recorder.program().scratch(kDemand, Dtype::int32, {3});
    recorder.clear("most_rows", write(demand));
  }
  if (!apart) clear_losses(recorder, model, told_by_head(step));
  clear_losses(recorder, model, step.mtp_losses);
}

/// The tied weight's gradient, of which one stage has the embedding's part and another the head's:
/// both get the sum.
void add_tied_gradients(Recorder& recorder, const Model& model) {
  const parallel::RankGroup& pipeline = model.ranks().group(parallel::Group::pipeline);
  const Tensor mine = recorder.gradient(model.embedding());
  recorder.set_prefix("pipeline");
  const Tensor theirs =
      recorder.scratch("tied_gradient", recorder.accumulation(), model.embedding().local_shape());
  const int peer = model.has_embedding() ? pipeline.size() - 1 : 0;
  Program& program = recorder.program();
  program.append(pipeline.exchange(program, "pipeline/tied_gradient",
                                   {{peer, true, {mine, {}}}, {peer, false, {theirs, {}}}}));
  recorder.compute("add_tied_gradient", kernels::Add{recorder.buffer(mine)},
                   {.a = mine, .b = theirs, .out = mine});
}

/// What this rank's experts were to get, as what ranks add up.
Tensor tell_rows(Recorder& recorder, const Model& model, const TrainingProgram& step) {
  const parallel::RankGroup& world = model.ranks().group(parallel::Group::world);
  const Tensor rows =
      recorder.scratch("expert_rows", recorder.accumulation(), {1 + 3 * world.size()});
  recorder.compute("tell_rows",
                   kernels::TellRows{.ranks = world.size(),
                                     .rank = world.rank(),
                                     .capacity = step.expert_capacity,
                                     .storage = recorder.storage()},
                   {.demand = recorder.program().find(kDemand), .rows = rows});
  return rows;
}

/// A step in which rows had no room changes nothing.
void judge_rows(Recorder& recorder, const Model& model, const TrainingProgram& step, Tensor rows) {
  recorder.compute("judge_rows",
                   kernels::JudgeRows{.ranks = model.ranks().group(parallel::Group::world).size(),
                                      .storage = recorder.storage()},
                   {.rows = rows, .need = step.expert_rows, .step_ok = step.step_ok});
}

/// @throws Error if microbatches cannot be added by one tree on these ranks
void require_tree(const Model& model, const Sharing& sharing, int microbatches) {
  const parallel::GridShape& grid = model.ranks().shape;
  STOWAGE_ASSERT(one_tree(grid, model.config().tied_embeddings) && !sharing.bf16_gradients &&
                     model.further_depths() == 0,
                 "one tree of microbatches on {}", grid.describe());
  STOWAGE_ASSERT(microbatches % sharing.leaf_microbatches == 0, "{} microbatches in leaves of {}",
                 microbatches, sharing.leaf_microbatches);
}

/// Whether an op is of a layer of experts.
bool of_experts(const Program& program, const execution::Op& op) {
  return std::ranges::any_of(all_kinds(), [&](const Kind* kind) {
    return kind->experts && enclosing(program, op, kind->scope) >= 0;
  });
}

/// Bytes of the exchanges in layers of experts among the ranks that share them.
double expert_bytes(const Program& program, const parallel::RankGroup& sharers) {
  double bytes = 0;
  for (const execution::Section& section : program.sections())
    for (int i = section.begin; i < section.end; ++i) {
      const execution::Op& op = program.ops()[i];
      if (op.communication && op.communication->group == sharers.name() && of_experts(program, op))
        bytes += section.repeat * op.cost.bytes;
    }
  return bytes;
}

/// What ranks add up: losses, and the loads of experts.
std::vector<Tensor> values_of(const TrainingProgram& step, const Model& model, Recorder& recorder,
                              std::optional<StepValues>& apart) {
  std::vector<Tensor> values = model.step_counts(recorder);
  if (const Tensor squares = step.program.find(kStreamSquares)) values.push_back(squares);
  if (apart) {
    values.push_back(apart->nodes(recorder));
    return values;
  }
  for (const Tensor told : told_by_head(step)) values.push_back(told);
  if (step.router_losses) values.push_back(step.router_losses);
  values.insert(values.end(), step.mtp_losses.begin(), step.mtp_losses.end());
  return values;
}

}  // namespace

TrainingProgram record_training(const Model& model, const StepShape& shape, const Optimizer& rule,
                                const OptimizerConfig& optimizer,
                                const execution::PersistentLayout& layout, const Sharing& sharing) {
  TrainingProgram step;
  step.shape = shape;
  step.expert_capacity =
      expert_capacity(model.config(), model.ranks(), shape.tokens, shape.capacity_factor);
  step.program = Program("train", &layout);
  Program& program = step.program;
  const Dtype accum = model.precision().accumulation();
  program.begin_section("prologue");
  step.inputs = add_inputs(program, shape, model);
  step.loss_scale = program.input("loss_scale", accum, {1});
  step.schedule = program.input("schedule", accum, {2});
  step.go_on = program.input("go_on", Dtype::int32, {1});
  if (optimizer.attempts)
    step.attempt = program.input("attempt", Dtype::int64, {kernels::kAttemptWords});
  if (optimizer.update_norms > 0) step.asked = program.input("asked", Dtype::int32, {1});
  gather_parameters(program, layout, sharing, model.parameters());
  add_outputs(step, model, optimizer);
  Handles handles;
  Recorder recorder(program, model.precision(), {}, handles);
  begin(recorder, model, step, sharing.same_on_ranks);
  std::optional<StepValues> values;
  std::optional<GradientTree> tree;
  if (sharing.same_on_ranks) {
    require_tree(model, sharing, shape.microbatches);
    values.emplace(recorder, step.router_losses ? model.config().layers() : 0, told_by_head(step),
                   sharing.tree(shape.microbatches));
    tree.emplace(program, layout, sharing.gradient_tree(shape.microbatches));
  }
  PassRecorder::Stored stored;
  if (tree)
    stored = [&](Recorder&, std::span<const Parameter> parameters, const parallel::Leaf& leaf) {
      tree->add(parameters, leaf);
    };
  const GradientSums sums(layout, optimizer.seed);
  const bool rounds = GradientSums::in(layout, model.precision(), model.parameters().front());
  if (rounds)
    stored = [&](Recorder& of_microbatch, std::span<const Parameter> parameters,
                 const parallel::Leaf& microbatch) {
      sums.add(of_microbatch, parameters, microbatch);
    };
  GradientBuckets buckets(program, layout, sharing, tree ? &*tree : nullptr);
  std::optional<OwnNorm> own;
  if (step.own_norm) own.emplace(recorder, model);
  const auto finished = [&](std::span<const Parameter> parameters, bool exchange_follows) {
    if (own) own->finished(parameters);
    buckets.finished(parameters, exchange_follows);
  };
  PassRecorder(program, model, handles,
               {shape, step.inputs, step.loss_scale, step.loss, values ? &*values : nullptr, rounds,
                sharing.leaf_microbatches})
      .record(
          training_passes(model, shape.microbatches, sharing), finished, [&] { buckets.sum_due(); },
          stored);
  program.begin_section("epilogue");
  if (model.shares_embedding()) {
    add_tied_gradients(recorder, model);
    finished({&model.embedding(), 1}, false);
  }
  if (own) own->record(step.own_norm);
  std::vector<Tensor> added = values_of(step, model, recorder, values);
  const Tensor rows = step.expert_rows ? tell_rows(recorder, model, step) : Tensor{};
  if (rows) added.push_back(rows);
  Update update(recorder, model, rule, optimizer, layout, sharing, std::move(added));
  if (step.own_loss) {
    const SomeRows of = values ? values->place(step.loss) : SomeRows{step.loss};
    recorder.copy("own_loss", {of.whole, Access::read, of.rows}, write(step.own_loss));
  }
  update.record_squares();
  update.record_sums(step.step_ok);
  if (values) values->finish(recorder, step.router_losses);
  if (rows) judge_rows(recorder, model, step, rows);
  update.record_norm(step.grad_norm, step.step_ok);
  if (optimizer.part_norms) update.record_norms_of_parts();
  if (step.attempt) update.record_guard(optimizer.spikes, step);
  update.record_update(step);
  model.end_of_step(recorder, step.step_ok);
  program.finish();
  step.expert_bytes = expert_bytes(program, model.ranks().group(parallel::Group::experts));
  return step;
}

EvaluationProgram record_evaluation(const Model& model, const StepShape& shape,
                                    const execution::PersistentLayout& layout,
                                    const Sharing& sharing, Logits logits) {
  EvaluationProgram step;
  step.shape = shape;
  step.program = Program("evaluate", &layout);
  Program& program = step.program;
  program.begin_section("prologue");
  step.inputs = add_inputs(program, shape, model);
  gather_parameters(program, layout, sharing, model.parameters());
  step.loss = program.output("loss", model.precision().accumulation(), {2});
  if (model.config().z_loss_coeff > 0)
    step.z_loss = program.output(kZLoss, model.precision().accumulation(), {2});
  step.hits = program.output(kHits, model.precision().accumulation(), {2});
  if (model.config().mtp.evaluated)
    for (int depth = 1; depth <= model.further_depths(); ++depth)
      step.mtp_losses.push_back(
          program.output(mtp_loss_name(depth), model.precision().accumulation(), {2}));
  if (logits == Logits::all)
    step.logits = program.output(kLogits, model.precision().accumulation(),
                                 {shape.tokens, model.config().vocabulary});
  Handles handles;
  Recorder recorder(program, model.precision(), {}, handles);
  recorder.set_prefix("step");
  std::optional<StepValues> values;
  const std::vector<Tensor> told = told_by_head(step.loss, step.z_loss);
  if (sharing.same_on_ranks) values.emplace(recorder, 0, told, sharing.tree(shape.microbatches));
  recorder.set_prefix("step");
  if (!values) clear_losses(recorder, model, told);
  clear_losses(recorder, model, {step.hits});
  clear_losses(recorder, model, step.mtp_losses);
  PassRecorder(program, model, handles,
               {shape, step.inputs, {}, step.loss, values ? &*values : nullptr})
      .record(evaluation_passes(model, shape.microbatches, sharing));
  program.begin_section("epilogue");
  const parallel::RankGroup& world = sharing.ranks.group(parallel::Group::world);
  std::vector<Tensor> sums = values ? std::vector{values->nodes(recorder)} : told;
  sums.push_back(step.hits);
  sums.insert(sums.end(), step.mtp_losses.begin(), step.mtp_losses.end());
  if (world.size() > 1)
    for (const Tensor sum : sums)
      program.append(world.all_reduce(program, "all_reduce/" + program.info(sum).name, {sum, {}},
                                      parallel::Reduction::sum));
  if (values) values->finish(recorder, {});
  program.finish();
  return step;
}

}  // namespace stowage::layers
