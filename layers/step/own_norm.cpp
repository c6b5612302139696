#include "layers/step/own_norm.hpp"

#include "execution/error.hpp"
#include "kernels/optimizer/global_norm.hpp"

namespace stowage::layers {

using execution::Dtype;

OwnNorm::OwnNorm(Recorder& recorder, const Model& model) : recorder_(recorder) {
  for (const Parameter& parameter : model.parameters()) {
    first_blocks_.emplace(parameter.name, blocks_);
    blocks_ += kernels::norm_blocks(parameter.elements());
  }
  sums_ = recorder_.program().scratch("own_squares", Dtype::fp64, {blocks_});
}

/// Parameters that are finished together are neighbours in the model's order.
void OwnNorm::finished(std::span<const Parameter> parameters) {
  if (parameters.empty()) return;
  const std::int64_t first = first_blocks_.at(parameters.front().name);
  kernels::NormPartials partials{.pieces = {}, .slots = 0, .storage = recorder_.storage()};
  kernels::NormPartials::Operands<Tensor> operands;
  for (const Parameter& parameter : parameters) {
    STOWAGE_ASSERT(first_blocks_.at(parameter.name) == first + partials.slots,
                   "{} is no neighbour of what is finished with it", parameter.name);
    partials.pieces.push_back({.elements = parameter.elements(), .slot = partials.slots});
    const Tensor gradient = recorder_.program().find(gradient_name(parameter.name));
    partials.gradient_type = recorder_.buffer(gradient).dtype;
    operands.gradients.push_back({gradient});
    partials.slots += kernels::norm_blocks(parameter.elements());
  }
  operands.partials = {sums_, {first, first + partials.slots}};
  recorder_.set_prefix("own");
  recorder_.compute("squares/" + parameters.front().name, partials, operands);
}

void OwnNorm::record(Tensor norm) {
  const Tensor ok = recorder_.program().scratch("own_ok", Dtype::int32, {1});
  recorder_.set_prefix("own");
  recorder_.compute("norm", kernels::NormFinish{blocks_, recorder_.storage(), false},
                    {.partials = sums_, .norm = norm, .step_ok = ok});
}

}  // namespace stowage::layers
