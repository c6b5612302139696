#include "layers/mixers/gated_norm.hpp"

#include <utility>

namespace stowage::layers {

GatedNorm::GatedNorm(std::shared_ptr<const parallel::RankGroup> tensor, Parameter weight,
                     std::int64_t groups, int copies, double epsilon)
    : ranks_(std::move(tensor)),
      weight_(std::move(weight)),
      groups_(groups),
      copies_(copies),
      epsilon_(epsilon) {}

Tensor GatedNorm::sums(Recorder& recorder, const std::string& name) const {
  return recorder.scratch(name, recorder.accumulation(), {1, recorder.tokens()});
}

Tensor GatedNorm::forward(Recorder& recorder, Tensor y, Tensor zxbcdt, std::string_view module,
                          Rounding rounding) const {
  const std::int64_t n = recorder.tokens();
  const kernels::ColumnsOf<Tensor> z{zxbcdt, 0, inner()};
  const Tensor weight = recorder.parameter(weight_);
  Tensor& squares = recorder.kept<Saved>(*this).squares;
  if (shared()) {
    const Tensor mine = sums(recorder, "group_squares");
    recorder.compute(
        "group_squares",
        kernels::GatedSquares{.rows = n, .width = inner(), .storage = recorder.storage()},
        {.y = y, .z = z, .squares = mine});
    // What comes of a message cannot be made again in backward: it stays.
    squares = recorder.saved("all_group_squares", recorder.accumulation(), {ranks_.size(), n}, "");
    ranks_.gather_to(recorder, "group_squares", mine, squares);
  }
  const Tensor gated = saved(recorder, rounding, "gated", {n, inner()}, module);
  const Tensor amax = measure(recorder, rounding, gated);
  recorder.compute("gated_norm",
                   kernels::GatedRmsnormForward{.rows = n,
                                                .width = inner(),
                                                .groups = groups_,
                                                .storage = recorder.storage(),
                                                .eps = epsilon_,
                                                .shares = shares(),
                                                .measured = static_cast<bool>(amax)},
                   {.y = y, .z = z, .w = weight, .squares = squares, .out = gated, .amax = amax});
  return gated;
}

Tensor GatedNorm::backward(Recorder& recorder, Tensor dgated, Tensor y, Tensor zxbcdt,
                           Tensor dzxbcdt, Tensor amax) const {
  const std::int64_t n = recorder.tokens();
  const kernels::ColumnsOf<Tensor> z{zxbcdt, 0, inner()}, dz{dzxbcdt, 0, inner()};
  const Tensor dy = recorder.scratch("dscan_out", {n, inner()});
  const kernels::GatedRmsnormBackward norm{.rows = n,
                                           .width = inner(),
                                           .groups = groups_,
                                           .storage = recorder.storage(),
                                           .eps = epsilon_,
                                           .accumulate = recorder.batch().accumulate,
                                           .shares = shares(),
                                           .measured = static_cast<bool>(amax)};
  const Tensor workspace = recorder.workspace("norm_gate_workspace", norm.workspace_bytes());
  const Tensor weight = recorder.parameter(weight_), dweight = recorder.gradient(weight_);
  Tensor projections;
  if (shared()) {
    const Tensor mine = sums(recorder, "group_projections");
    recorder.compute(
        "group_projections",
        kernels::GatedProjections{.rows = n, .width = inner(), .storage = recorder.storage()},
        {.dout = dgated, .y = y, .z = z, .w = weight, .projections = mine});
    projections = ranks_.gather(recorder, "all_group_projections", mine);
  }
  recorder.compute("gated_norm_backward", norm,
                   {.dout = dgated,
                    .y = y,
                    .z = z,
                    .w = weight,
                    .dy = dy,
                    .dz = dz,
                    .dw = dweight,
                    .workspace = workspace,
                    .squares = recorder.kept<Saved>(*this).squares,
                    .projections = projections,
                    .amax = amax});
  return dy;
}

}  // namespace stowage::layers
