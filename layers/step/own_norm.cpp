#include "layers/step/own_norm.hpp"

#include "execution/error.hpp"
#include "kernels/optimizer/global_norm.hpp"

namespace stowage::layers {

using execution::Dtype;
using Views = std::span<const execution::View>;

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
  std::vector<Use> uses(1);
  std::vector<kernels::NormPiece> pieces;
  std::int64_t blocks = 0, elements = 0;
  for (const Parameter& parameter : parameters) {
    STOWAGE_ASSERT(first_blocks_.at(parameter.name) == first + blocks,
                   "{} is no neighbour of what is finished with it", parameter.name);
    pieces.push_back({.gradient = {}, .elements = parameter.elements(), .slot = blocks});
    uses.push_back(read(recorder_.gradient(parameter)));
    blocks += kernels::norm_blocks(parameter.elements());
    elements += parameter.elements();
  }
  uses.front() = {sums_, Access::write, {first, first + blocks}};
  recorder_.set_prefix("own");
  recorder_.compute("squares/" + parameters.front().name,
                    kernels::norm_partials_cost(elements, recorder_.accumulation()),
                    std::move(uses), [pieces](execution::Queue& q, Views v) {
                      std::vector<kernels::NormPiece> bound = pieces;
                      for (std::size_t i = 0; i < bound.size(); ++i) bound[i].gradient = v[i + 1];
                      kernels::norm_partials(q, bound, v[0]);
                    });
}

void OwnNorm::record(Tensor norm) {
  const Tensor ok = recorder_.program().scratch("own_ok", Dtype::int32, {1});
  recorder_.set_prefix("own");
  recorder_.compute(
      "norm", kernels::norm_finish_cost(blocks_), {read(sums_), write(norm), write(ok)},
      [](execution::Queue& q, Views v) { kernels::norm_finish(q, v[0], v[1], v[2]); });
}

}  // namespace stowage::layers
