#include "layers/step.hpp"

#include <algorithm>

#include "execution/error.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "layers/router.hpp"
#include "layers/update.hpp"

namespace stowage::layers {

using execution::Dtype;
using Views = std::span<const execution::View>;

namespace {

void add_outputs(TrainingProgram& step, const Model& model) {
  const Dtype accum = model.precision().accumulation();
  step.loss = step.program.output("loss", accum, {2});
  step.grad_norm = step.program.output("grad_norm", accum, {1});
  step.step_ok = step.program.output("step_ok", Dtype::int32, {1});
  if (model.has_router_losses())
    step.router_losses = step.program.output(kRouterLosses, accum, {2});
}

void begin(Recorder& recorder, const TrainingProgram& step) {
  recorder.set_prefix("step");
  recorder.compute("ok", {}, {read(step.go_on), write(step.step_ok)},
                   [](execution::Queue& q, Views v) {
                     q.copy(v[1].as<void>(), v[0].as<void>(), v[0].buffer().bytes());
                   });
  if (step.router_losses)
    recorder.compute("router_losses", {}, {write(step.router_losses)},
                     [](execution::Queue& q, Views v) { kernels::fill(q, v[0], 0); });
}

/// What ranks add up: losses, and the loads of experts.
std::vector<Tensor> values_of(const TrainingProgram& step, const Model& model, Recorder& recorder) {
  std::vector<Tensor> values = model.step_counts(recorder);
  values.push_back(step.loss);
  if (step.router_losses) values.push_back(step.router_losses);
  return values;
}

}  // namespace

TrainingProgram record_training(const Model& model, const StepShape& shape,
                                const OptimizerConfig& optimizer,
                                const execution::PersistentLayout& layout, const Sharing& sharing) {
  TrainingProgram step;
  step.shape = shape;
  step.program = Program("train", &layout);
  Program& program = step.program;
  const Dtype accum = model.precision().accumulation();
  program.begin_section("prologue");
  step.inputs = add_inputs(program, shape);
  step.loss_scale = program.input("loss_scale", accum, {1});
  step.schedule = program.input("schedule", accum, {2});
  step.go_on = program.input("go_on", Dtype::int32, {1});
  gather_parameters(program, layout, sharing);
  add_outputs(step, model);
  Handles handles;
  Recorder recorder(program, model.precision(), {}, handles);
  begin(recorder, step);
  GradientBuckets buckets(program, layout, sharing);
  TurnRecorder(program, model, handles, {shape, step.inputs, step.loss_scale, step.loss})
      .record(train_in_turn(shape.microbatches),
              [&](std::span<const Parameter> parameters) { buckets.finished(parameters); });
  program.begin_section("epilogue");
  Update update(recorder, model, layout, sharing, values_of(step, model, recorder));
  update.record_squares();
  update.record_sums(step.step_ok);
  update.record_norm(step.grad_norm, step.step_ok);
  update.record_adamw(optimizer, step);
  model.end_of_step(recorder, step.step_ok);
  program.finish();
  return step;
}

EvaluationProgram record_evaluation(const Model& model, const StepShape& shape,
                                    const execution::PersistentLayout& layout,
                                    const Sharing& sharing, bool logits) {
  EvaluationProgram step;
  step.shape = shape;
  step.program = Program("evaluate", &layout);
  Program& program = step.program;
  program.begin_section("prologue");
  step.inputs = add_inputs(program, shape);
  gather_parameters(program, layout, sharing);
  step.loss = program.output("loss", model.precision().accumulation(), {2});
  if (logits)
    step.logits = program.output(kLogits, model.precision().accumulation(),
                                 {shape.tokens, model.config().vocabulary});
  Handles handles;
  TurnRecorder(program, model, handles, {shape, step.inputs, {}, step.loss})
      .record(evaluate_in_turn(shape.microbatches));
  program.begin_section("epilogue");
  if (const auto& world = sharing.ranks.group(parallel::Group::world); world.size() > 1)
    program.append(
        world.all_reduce(program, "all_reduce/loss", {step.loss, {}}, parallel::Reduction::sum));
  program.finish();
  return step;
}

std::string stage_pattern(const std::string& pattern, int stage, int stages) {
  const auto cuts = std::count(pattern.begin(), pattern.end(), '|');
  if (cuts > 0) {
    if (cuts + 1 != stages)
      execution::throw_usage("model.pattern = \"{}\": it has {} stages, {} are asked for", pattern,
                             cuts + 1, stages);
    std::size_t begin = 0;
    for (int s = 0; s < stage; ++s) begin = pattern.find('|', begin) + 1;
    return pattern.substr(begin, pattern.find('|', begin) - begin);
  }
  const int layers = static_cast<int>(pattern.size());
  if (layers < stages)
    execution::throw_usage("model.pattern = \"{}\": {} layers are too few for {} stages", pattern,
                           layers, stages);
  const int share = layers / stages;
  const int more = layers % stages;
  const int begin = stage * share + std::min(stage, more);
  return pattern.substr(static_cast<std::size_t>(begin),
                        static_cast<std::size_t>(share + (stage < more ? 1 : 0)));
}

Program record_stage(const Model& model, const StepShape& shape,
                     const execution::PersistentLayout& layout) {
  Program program("stage", &layout);
  const Dtype accum = model.precision().accumulation();
  program.begin_section("prologue");
  const StackedInputs inputs = add_inputs(program, shape);
  const Tensor loss_scale = program.input("loss_scale", accum, {1});
  const Tensor loss = program.output("loss", accum, {2});
  Handles handles;
  TurnRecorder(program, model, handles, {shape, inputs, loss_scale, loss})
      .record(full_pipeline(shape.microbatches));
  program.begin_section("epilogue");
  program.finish();
  return program;
}

}  // namespace stowage::layers
