#include "layers/mixers/layer.hpp"

#include <fmt/core.h>

#include "kernels/norm/rmsnorm.hpp"
#include "layers/recording/partition.hpp"

namespace stowage::layers {

using Views = std::span<const execution::View>;

Layer::Layer(const ModelConfig& config, const parallel::Ranks& ranks, int index,
             std::unique_ptr<Mixer> mixer)
    : width_(config.width),
      epsilon_(config.norm_epsilon),
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

/// The norm is of the stored sum, so it can be repeated without what was added to it.
void Layer::record_norm(Recorder& recorder, const Stream& stream, const Saved& kept) const {
  const std::int64_t n = recorder.rows();
  const double eps = epsilon_;
  const Tensor w = recorder.parameter(norm_);
  const Cost cost = kernels::add_rmsnorm_forward_cost(n, width_, recorder.storage(), false);
  std::vector<Use> uses{read(kept.sum), read(w), write(kept.normed), write(kept.rstd)};
  const Launch norm = [eps](execution::Queue& q, Views v) {
    kernels::add_rmsnorm_forward(q, v[0], {}, v[1], {}, v[2], v[3], eps);
  };
  if (!stream.delta) return recorder.compute("norm", cost, std::move(uses), norm);
  recorder.compute("norm", kernels::add_rmsnorm_forward_cost(n, width_, recorder.storage(), true),
                   {read(stream.x), read(stream.delta), read(w), write(kept.sum),
                    write(kept.normed), write(kept.rstd)},
                   [eps](execution::Queue& q, Views v) {
                     kernels::add_rmsnorm_forward(q, v[0], v[1], v[2], v[3], v[4], v[5], eps);
                   });
  recorder.rerun_only("norm_again", cost, std::move(uses), norm);
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
