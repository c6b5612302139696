#include "layers/mixers/gated_norm.hpp"

#include <utility>

namespace stowage::layers {

using Views = std::span<const execution::View>;

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

Tensor GatedNorm::forward(Recorder& recorder, Tensor y, Tensor zxbcdt,
                          std::string_view module) const {
  const std::int64_t n = recorder.tokens(), inner = this->inner();
  std::vector<Use> uses = {read(y), read(zxbcdt), read(recorder.parameter(weight_))};
  if (shared()) {
    const Tensor mine = sums(recorder, "group_squares");
    recorder.compute("group_squares", kernels::gated_squares_cost(n, inner, recorder.storage()),
                     {read(y), read(zxbcdt), write(mine)}, [inner](execution::Queue& q, Views v) {
                       kernels::gated_squares(q, v[0], {v[1], 0, inner}, v[2]);
                     });
    // What comes of a message cannot be made again in backward: it stays.
    const Tensor all =
        recorder.saved("all_group_squares", recorder.accumulation(), {ranks_.size(), n}, "");
    ranks_.gather_to(recorder, "group_squares", mine, all);
    recorder.kept<Saved>(*this).squares = all;
    uses.push_back(read(all));
  }
  const Tensor gated = recorder.saved("gated", {n, inner}, module);
  uses.push_back(write(gated));
  recorder.compute(
      "gated_norm", kernels::gated_rmsnorm_forward_cost(n, inner, recorder.storage()),
      std::move(uses),
      [inner, groups = groups_, eps = epsilon_, parts = parts()](execution::Queue& q, Views v) {
        kernels::GroupShares shares = parts;
        if (shares.count > 1) shares.squares = v[3];
        kernels::gated_rmsnorm_forward(q, v[0], {v[1], 0, inner}, v[2], v.back(), groups, eps,
                                       shares);
      });
  return gated;
}

Tensor GatedNorm::backward(Recorder& recorder, Tensor dgated, Tensor y, Tensor zxbcdt,
                           Tensor dzxbcdt) const {
  const std::int64_t n = recorder.tokens(), inner = this->inner();
  const Tensor dy = recorder.scratch("dscan_out", {n, inner});
  const Tensor workspace = recorder.workspace(
      "norm_gate_workspace",
      kernels::gated_rmsnorm_backward_workspace_bytes(n, inner, recorder.storage()));
  const Tensor weight = recorder.parameter(weight_);
  std::vector<Use> uses = {read(dgated),
                           read(y),
                           read(zxbcdt),
                           read(weight),
                           write(dy),
                           write(dzxbcdt),
                           recorder.into(recorder.gradient(weight_)),
                           write(workspace)};
  if (shared()) {
    const Tensor mine = sums(recorder, "group_projections");
    recorder.compute("group_projections",
                     kernels::gated_projections_cost(n, inner, recorder.storage()),
                     {read(dgated), read(y), read(zxbcdt), read(weight), write(mine)},
                     [inner](execution::Queue& q, Views v) {
                       kernels::gated_projections(q, v[0], v[1], {v[2], 0, inner}, v[3], v[4]);
                     });
    uses.push_back(read(recorder.kept<Saved>(*this).squares));
    uses.push_back(read(ranks_.gather(recorder, "all_group_projections", mine)));
  }
  const bool accumulate = recorder.batch().accumulate;
  recorder.compute("gated_norm_backward",
                   kernels::gated_rmsnorm_backward_cost(n, inner, recorder.storage()),
                   std::move(uses),
                   [inner, groups = groups_, eps = epsilon_, parts = parts(), accumulate](
                       execution::Queue& q, Views v) {
                     kernels::GroupShares shares = parts;
                     if (shares.count > 1) {
                       shares.squares = v[8];
                       shares.projections = v[9];
                     }
                     kernels::gated_rmsnorm_backward(q, v[0], v[1], {v[2], 0, inner}, v[3], v[4],
                                                     {v[5], 0, inner}, v[6], v[7], groups, eps,
                                                     accumulate, shares);
                   });
  return dy;
}

}  // namespace stowage::layers
