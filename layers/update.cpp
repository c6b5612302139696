#include "layers/update.hpp"

#include "kernels/optimizer/adamw.hpp"
#include "kernels/optimizer/global_norm.hpp"
#include "layers/state.hpp"

namespace stowage::layers {

using execution::Dtype;
using execution::Lifetime;
using execution::View;
using Views = std::span<const View>;

namespace {

Tensor state(Recorder& recorder, const std::string& name, Dtype dtype,
             const std::vector<std::int64_t>& shape) {
  return recorder.program().add(
      {name, {{"payload", dtype, shape}}, Lifetime::optimizer_state, {}, {}});
}

std::int64_t element_count(const std::vector<Parameter>& parameters) {
  std::int64_t sum = 0;
  for (const Parameter& p : parameters) sum += p.elements();
  return sum;
}

}  // namespace

void record_norm(Recorder& recorder, const Model& model, Tensor grad_norm, Tensor step_ok) {
  recorder.set_prefix("optimizer");
  const std::vector<Parameter> parameters = model.parameters();
  const std::int64_t elements = element_count(parameters);
  std::vector<Use> uses;
  std::vector<kernels::NormPiece> pieces;
  std::int64_t slots = 0;
  for (const Parameter& p : parameters) {
    uses.push_back(read(recorder.gradient(p)));
    pieces.push_back({.gradient = {}, .first = 0, .elements = p.elements(), .slot = slots});
    slots += kernels::norm_blocks(p.elements());
  }
  const Tensor partials = recorder.scratch("norm_partials", Dtype::fp64, {slots});
  uses.push_back(write(partials));
  recorder.compute("norm_partials", kernels::norm_partials_cost(elements, recorder.accumulation()),
                   std::move(uses), [pieces](execution::Queue& q, Views v) {
                     std::vector<kernels::NormPiece> bound = pieces;
                     for (std::size_t i = 0; i < bound.size(); ++i) bound[i].gradient = v[i];
                     kernels::norm_partials(q, bound, v.back());
                   });
  recorder.compute("norm_finish", kernels::norm_finish_cost(slots),
                   {read(partials), write(grad_norm), update(step_ok)},
                   [](execution::Queue& q, Views v) { kernels::norm_finish(q, v[0], v[1], v[2]); });
}

void record_update(Recorder& recorder, const Model& model, const OptimizerConfig& optimizer,
                   const TrainingProgram& step) {
  recorder.set_prefix("optimizer");
  const std::vector<Parameter> parameters = model.parameters();
  const Dtype accum = recorder.accumulation();
  const bool has_master = model.precision().has_master();
  const Tensor good_steps = state(recorder, kGoodSteps, Dtype::int64, {1});
  std::vector<Use> uses = {read(step.schedule), read(good_steps), read(step.grad_norm),
                           read(step.step_ok)};
  std::vector<char> decay;
  for (const Parameter& p : parameters) {
    uses.push_back(update(recorder.parameter(p)));
    if (has_master) uses.push_back(update(state(recorder, master_name(p.name), accum, p.shape)));
    uses.push_back(read(recorder.gradient(p)));
    uses.push_back(update(state(recorder, first_moment_name(p.name), accum, p.shape)));
    uses.push_back(update(state(recorder, second_moment_name(p.name), accum, p.shape)));
    decay.push_back(p.decay);
  }
  const kernels::AdamwOptions options{optimizer.beta1, optimizer.beta2, optimizer.epsilon};
  recorder.compute(
      "adamw", kernels::adamw_cost(element_count(parameters), recorder.storage(), has_master),
      std::move(uses),
      [decay, has_master, options, clip = optimizer.clip](execution::Queue& q, Views v) {
        std::vector<kernels::AdamwTensor> tensors(decay.size());
        std::size_t at = 4;
        for (std::size_t i = 0; i < decay.size(); ++i) {
          kernels::AdamwTensor& t = tensors[i];
          t.parameter = v[at++];
          if (has_master) t.master = v[at++];
          t.gradient = v[at++];
          t.m = v[at++];
          t.v = v[at++];
          t.elements = t.parameter.buffer().elements();
          t.decay = decay[i] != 0;
        }
        kernels::adamw(q, tensors, v[0], v[1], v[2], clip, v[3], options);
      });
  recorder.compute("advance", {}, {update(good_steps), read(step.step_ok)},
                   [](execution::Queue& q, Views v) { kernels::advance(q, v[0], v[1]); });
}

}  // namespace stowage::layers
