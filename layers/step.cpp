#include "layers/step.hpp"

#include <algorithm>
#include <map>

#include "kernels/cross_entropy/loss_sum.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "layers/microbatches.hpp"
#include "layers/router.hpp"
#include "layers/update.hpp"

namespace stowage::layers {

using execution::Dtype;
using Views = std::span<const execution::View>;

namespace {

/// Appends a bucket's reduction as soon as the last of its gradients is finished.
class GradientBuckets {
 public:
  GradientBuckets(Program& program, const execution::PersistentLayout& layout,
                  const AllReduce& all_reduce)
      : program_(program), all_reduce_(all_reduce) {
    for (const execution::Bucket& bucket : layout.buckets()) {
      if (bucket.tensors.empty() ||
          layout.info(bucket.tensors.front()).lifetime != execution::Lifetime::gradient)
        continue;
      const std::size_t id = buckets_.size();
      buckets_.push_back({bucket.name, {}, bucket.tensors.size()});
      for (const std::string& tensor : bucket.tensors) {
        buckets_[id].tensors.push_back(program.add(layout.info(tensor)));
        bucket_of_[tensor] = id;
      }
    }
  }

  void finished(std::span<const Parameter> parameters) {
    if (!all_reduce_) return;
    for (const Parameter& parameter : parameters) {
      Bucket& bucket = buckets_[bucket_of_.at(gradient_name(parameter.name))];
      if (--bucket.missing > 0) continue;
      program_.append(
          all_reduce_(program_, "all_reduce/" + bucket.name, bucket.tensors, Reduction::sum));
    }
  }

 private:
  struct Bucket {
    std::string name;
    std::vector<Tensor> tensors;
    std::size_t missing;
  };
  Program& program_;
  const AllReduce& all_reduce_;
  std::vector<Bucket> buckets_;
  std::map<std::string, std::size_t> bucket_of_;
};

void sum_losses(Recorder& recorder, Tensor losses, Tensor sums) {
  recorder.set_prefix("loss");
  const bool accumulate = recorder.batch().accumulate;
  recorder.compute("sum", kernels::loss_sum_cost(recorder.tokens(), recorder.accumulation()),
                   {read(losses), read(recorder.batch().targets), recorder.into(sums)},
                   [accumulate](execution::Queue& q, Views v) {
                     kernels::loss_sum(q, v[0], v[1], v[2], accumulate);
                   });
}

void reduce(Program& program, const AllReduce& all_reduce, Tensor tensor, Reduction how) {
  if (all_reduce)
    program.append(
        all_reduce(program, "all_reduce/" + program.info(tensor).name, {&tensor, 1}, how));
}

}  // namespace

TrainingProgram record_training(Model& model, const StepShape& shape,
                                const OptimizerConfig& optimizer,
                                const execution::PersistentLayout& layout,
                                const AllReduce& all_reduce) {
  TrainingProgram step;
  step.shape = shape;
  Program& program = step.program;
  const Precision precision = model.precision();
  const Dtype accum = precision.accumulation();
  program.begin_section("prologue");
  const StackedInputs inputs = add_inputs(program, shape);
  step.tokens = inputs.tokens;
  step.targets = inputs.targets;
  step.cu_seqlens = inputs.cu_seqlens;
  step.loss_scale = program.input("loss_scale", accum, {1});
  step.schedule = program.input("schedule", accum, {2});
  step.go_on = program.input("go_on", Dtype::int32, {1});
  step.loss = program.output("loss", accum, {2});
  step.grad_norm = program.output("grad_norm", accum, {1});
  step.step_ok = program.output("step_ok", Dtype::int32, {1});
  Recorder recorder(program, precision, {});
  recorder.set_prefix("step");
  recorder.compute("ok", {}, {read(step.go_on), write(step.step_ok)},
                   [](execution::Queue& q, Views v) {
                     q.copy(v[1].as<void>(), v[0].as<void>(), v[0].buffer().bytes());
                   });
  if (model.has_router_losses()) {
    step.router_losses = program.output(kRouterLosses, accum, {2});
    recorder.compute("router_losses", {}, {write(step.router_losses)},
                     [](execution::Queue& q, Views v) { kernels::fill(q, v[0], 0); });
  }
  GradientBuckets buckets(program, layout, all_reduce);
  record_microbatches(program, precision, shape, inputs, step.loss_scale,
                      [&](Recorder& microbatch, bool last) {
                        const Tensor losses = model.forward(microbatch);
                        sum_losses(microbatch, losses, step.loss);
                        model.backward(microbatch, [&](std::span<const Parameter> parameters) {
                          if (last) buckets.finished(parameters);
                        });
                      });
  program.begin_section("epilogue");
  reduce(program, all_reduce, step.loss, Reduction::sum);
  if (step.router_losses) reduce(program, all_reduce, step.router_losses, Reduction::sum);
  for (const Tensor count : model.step_counts()) reduce(program, all_reduce, count, Reduction::sum);
  record_norm(recorder, model, step.grad_norm, step.step_ok);
  reduce(program, all_reduce, step.step_ok, Reduction::min);
  record_update(recorder, model, optimizer, step);
  model.end_of_step(recorder, step.step_ok);
  program.finish();
  return step;
}

EvaluationProgram record_evaluation(Model& model, const StepShape& shape,
                                    const AllReduce& all_reduce) {
  EvaluationProgram step;
  step.shape = shape;
  Program& program = step.program;
  const Precision precision = model.precision();
  program.begin_section("prologue");
  const StackedInputs inputs = add_inputs(program, shape);
  step.tokens = inputs.tokens;
  step.targets = inputs.targets;
  step.cu_seqlens = inputs.cu_seqlens;
  step.loss = program.output("loss", precision.accumulation(), {2});
  record_microbatches(program, precision, shape, inputs, {}, [&](Recorder& recorder, bool) {
    sum_losses(recorder, model.evaluate(recorder), step.loss);
  });
  program.begin_section("epilogue");
  reduce(program, all_reduce, step.loss, Reduction::sum);
  program.finish();
  return step;
}

}  // namespace stowage::layers
