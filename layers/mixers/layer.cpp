#include "layers/mixers/layer.hpp"

#include <fmt/core.h>

#include "kernels/norm/rmsnorm.hpp"
#include "layers/recording/partition.hpp"
#include "layers/recording/row_range.hpp"

namespace stowage::layers {

using execution::View;
using Views = std::span<const View>;

Layer::Layer(const ModelConfig& config, const parallel::Ranks& ranks, int index,
             std::unique_ptr<Mixer> mixer)
    : width_(config.width),
      epsilon_(config.norm_epsilon),
      rows_(ranks.shared_group(parallel::Group::tensor), config.tensor_pieces),
      index_(index),
      mixer_(std::move(mixer)),
      norm_{fmt::format("layers.{}.norm.weight", index),
            {config.width},
            Init::ones,
            false,
            Partition(ranks.group(parallel::Group::tensor)).replicated()} {}

std::string Layer::prefix() const { return fmt::format("layers.{}.{}", index_, mixer_->scope()); }

std::vector<Parameter> Layer::parameters() const {
  std::vector<Parameter> all = mixer_->parameters();
  all.push_back(norm_);
  return all;
}

Stream Layer::forward(Recorder& recorder, Stream stream) const {
  recorder.set_prefix(prefix());
  const auto layer = recorder.program().enter("layer", index_, recorder.batch().slot);
  const auto scope = recorder.program().enter(mixer_->scope(), index_, recorder.batch().slot);
  const std::int64_t n = recorder.rows();
  Saved& kept = recorder.kept<Saved>(*this);
  kept.normed = recorder.saved("normed", {n, width_}, mixer_->input_module());
  kept.rstd = recorder.saved("rstd", recorder.accumulation(), {n}, mixer_->norm_module());
  kept.sum = stream.delta ? recorder.saved("sum", {n, width_}, mixer_->norm_module()) : stream.x;
  record_norm(recorder, stream, kept);
  return {kept.sum, mixer_->forward(recorder, kept.normed)};
}

/// The norm is of the stored sum, so it can be repeated without what was added to it. Rows that
/// ranks exchange are normed piece by piece.
void Layer::record_norm(Recorder& recorder, const Stream& stream, const Saved& kept) const {
  const double eps = epsilon_;
  const Tensor w = recorder.parameter(norm_);
  const std::int64_t n = recorder.rows();
  const auto cost = [&](std::int64_t rows, bool adds) {
    return kernels::add_rmsnorm_forward_cost(rows, width_, recorder.storage(), adds);
  };
  for (const RowPiece& piece : rows_.pieces(recorder.tokens())) {
    const RowRange some(recorder.storage(), n, width_, piece.mine);
    std::vector<Use> uses{some.use(stream.x, Access::read), read(w),
                          some.use(kept.normed, Access::write),
                          some.use_of_vector(kept.rstd, Access::write)};
    if (stream.delta) {
      uses.push_back(some.use(stream.delta, Access::read));
      uses.push_back(some.use(kept.sum, Access::write));
    }
    recorder.compute_early(
        "norm" + piece.suffix, cost(some.count(), bool{stream.delta}), std::move(uses),
        [some, eps](execution::Queue& q, Views v) {
          const auto optional = [&](std::size_t i) { return i < v.size() ? some(v[i]) : View{}; };
          kernels::add_rmsnorm_forward(q, some(v[0]), optional(4), v[1], optional(5), some(v[2]),
                                       v[3], eps);
        });
  }
  if (stream.delta)
    recorder.rerun_only("norm_again", cost(n, false),
                        {read(kept.sum), read(w), write(kept.normed), write(kept.rstd)},
                        [eps](execution::Queue& q, Views v) {
                          kernels::add_rmsnorm_forward(q, v[0], {}, v[1], {}, v[2], v[3], eps);
                        });
}

Tensor Layer::backward(Recorder& recorder, Tensor dsum) const {
  recorder.set_prefix(prefix());
  const int slot = recorder.batch().slot;
  const auto layer = recorder.program().enter("layer", index_, slot, true);
  const auto scope = recorder.program().enter(mixer_->scope(), index_, slot, true);
  Saved& kept = recorder.kept<Saved>(*this);
  PostponedOps last;
  recorder.postpone_weights_to(&kept.weights, &last);
  const Tensor dnormed = mixer_->backward(recorder, dsum);
  recorder.postpone_weights_to(nullptr, nullptr);
  const std::int64_t n = recorder.rows();
  const Tensor dx = recorder.scratch("dsum", {n, width_});
  const Tensor workspace = recorder.workspace(
      "norm_workspace", kernels::rmsnorm_backward_workspace_bytes(n, width_, recorder.storage()));
  const bool accumulate = recorder.batch().accumulate;
  recorder.compute(
      "norm_backward", kernels::rmsnorm_backward_cost(n, width_, recorder.storage(), true),
      {read(dnormed), read(kept.sum), read(recorder.parameter(norm_)), read(kept.rstd), read(dsum),
       write(dx), recorder.into(recorder.gradient(norm_)), write(workspace)},
      [accumulate](execution::Queue& q, Views v) {
        kernels::rmsnorm_backward(q, v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], accumulate);
      });
  recorder.append_postponed(last);
  return dx;
}

void Layer::backward_weights(Recorder& recorder) const {
  const int slot = recorder.batch().slot;
  const auto layer = recorder.program().enter("layer", index_, slot, true);
  const auto scope = recorder.program().enter(mixer_->scope(), index_, slot, true);
  recorder.append_postponed(recorder.kept<Saved>(*this).weights);
}

}  // namespace stowage::layers
