#include "layers/recording/recorder.hpp"

#include <fmt/core.h>

#include "execution/error.hpp"
#include "kernels/elementwise/elementwise.hpp"

namespace stowage::layers {

using execution::UseIndex;
using execution::Views;

int enclosing(const Program& program, const execution::Op& op, std::string_view kind) {
  int at = op.scope;
  while (at >= 0 && program.scopes()[at].kind != kind) at = program.scopes()[at].parent;
  return at;
}

Recorder Recorder::at_depth(int depth, bool accumulate) const {
  const Batch::Further& further = batch_.further[static_cast<std::size_t>(depth) - 1];
  Batch batch = batch_;
  batch.tokens = further.tokens;
  batch.targets = further.targets;
  batch.loss_scale = batch_.further_loss_scale;
  batch.depth = depth;
  batch.later = batch.accumulate = accumulate;
  Recorder recorder(program_, precision_, std::move(batch), handles_);
  recorder.behind_exchanges_ = behind_exchanges_;
  return recorder;
}

std::string Recorder::full_name(std::string_view name) const {
  if (batch_.depth > 0)
    return fmt::format("mb{}/depth{}/{}/{}", batch_.slot, batch_.depth, prefix_, name);
  return fmt::format("mb{}/{}/{}", batch_.slot, prefix_, name);
}

Tensor Recorder::saved(std::string_view name, std::vector<std::int64_t> shape,
                       std::string_view module, execution::LeadingRows rows) {
  return saved(name, storage(), std::move(shape), module, rows);
}

Tensor Recorder::saved(std::string_view name, execution::Dtype dtype,
                       std::vector<std::int64_t> shape, std::string_view module,
                       execution::LeadingRows rows) {
  return program_.saved(full_name(name), dtype, std::move(shape), std::string(module), rows);
}

Tensor Recorder::scratch(std::string_view name, std::vector<std::int64_t> shape) {
  return scratch(name, storage(), std::move(shape));
}

Tensor Recorder::scratch(std::string_view name, execution::Dtype dtype,
                         std::vector<std::int64_t> shape) {
  return program_.scratch(full_name(name), dtype, std::move(shape));
}

Tensor Recorder::workspace(std::string_view name, std::size_t bytes) {
  const auto count = static_cast<std::int64_t>(bytes == 0 ? 1 : bytes);
  return scratch(name, execution::Dtype::uint8, {count});
}

Tensor Recorder::parameter(const Parameter& parameter) {
  return program_.add(execution::one_buffer(parameter.name, storage(), parameter.local_shape(),
                                            execution::Lifetime::parameter));
}

Tensor Recorder::gradient(const Parameter& parameter) {
  if (batch_.own_gradients) {
    const std::string name = fmt::format("mb{}/{}", batch_.slot, gradient_name(parameter.name));
    const Tensor made = program_.find(name);
    return made ? made : program_.scratch(name, accumulation(), parameter.local_shape());
  }
  return program_.add(execution::one_buffer(gradient_name(parameter.name), accumulation(),
                                            parameter.local_shape(),
                                            execution::Lifetime::gradient));
}

void Recorder::append_weights(execution::Op op, WeightsPosition position) {
  PostponedOps* postponed = position == WeightsPosition::last ? last_ : postponed_;
  if (postponed == nullptr) return program_.append(std::move(op));
  postponed->ops.push_back({std::move(op), program_.ops().size()});
}

void Recorder::append_postponed(PostponedOps& postponed) {
  const std::size_t meanwhile = program_.ops().size();  // what they make themselves comes behind
  for (PostponedOps::One& one : postponed.ops) {
    for (std::size_t i = one.before; i < meanwhile; ++i)
      for (const Use& later : program_.ops()[i].uses)
        for (const Use& use : one.op.uses)
          STOWAGE_ASSERT(use.access != Access::read || later.access == Access::read ||
                             use.tensor != later.tensor,
                         "{} was left for later, but {} has changed {} meanwhile", one.op.name,
                         program_.ops()[i].name, program_.info(use.tensor).name);
    program_.append(std::move(one.op));
  }
  postponed.ops.clear();
}

void Recorder::add(std::string_view name, Tensor x, Tensor onto) {
  compute(name, kernels::Add{buffer(x)}, {.a = x, .b = onto, .out = onto});
}

void Recorder::clear(std::string_view name, Use what, Cost cost) {
  execution::Op op;
  op.cost = cost;
  const UseIndex x = op.add_use(what);
  op.launch = [=](execution::Queue& queue, Views v) { kernels::fill(queue, x.in(v), 0); };
  compute(name, std::move(op));
}

void Recorder::copy(std::string_view name, Use from, Use to, Cost cost) {
  execution::Op op;
  op.cost = cost;
  const UseIndex x = op.add_use(from), y = op.add_use(to);
  op.launch = [=](execution::Queue& queue, Views v) {
    queue.copy(y.in(v).as<void>(), x.in(v).as<void>(), x.in(v).buffer().bytes());
  };
  compute(name, std::move(op));
}

void Recorder::append_rerun(execution::Op op) {
  op.only_rerun = true;
  program_.append(std::move(op));
}

execution::Op Recorder::named(std::string_view name, execution::Op op) const {
  op.name = full_name(name);
  return op;
}

}  // namespace stowage::layers
