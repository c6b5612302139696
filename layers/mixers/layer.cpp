#include "layers/mixers/layer.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "execution/error.hpp"
#include "kernels/norm/rmsnorm.hpp"
#include "layers/mixers/kinds.hpp"
#include "layers/mixers/stream_squares.hpp"
#include "layers/recording/partition.hpp"

namespace stowage::layers {

namespace {

std::map<const Kind*, MakeMixer>& factories() {
#define STOWAGE_FACTORY(kind) {&kinds::kind, make_##kind},
  static std::map<const Kind*, MakeMixer> all = {STOWAGE_KINDS(STOWAGE_FACTORY)};
#undef STOWAGE_FACTORY
  return all;
}

}  // namespace

std::unique_ptr<Mixer> make_mixer(const Kind& kind, const MixerPlace& place) {
  return factories().at(&kind)(place);
}

bool add_kind(const Kind& kind, MakeMixer make) {
  detail::registered_kinds().push_back(&kind);
  return factories().emplace(&kind, make).second;
}

Layer::Layer(const Kind& kind, const MixerPlace& place)
    : kind_(&kind),
      width_(place.config.width),
      epsilon_(place.config.norm_epsilon),
      zero_centred_(place.config.zero_centred_norms),
      name_(place.prefix),
      index_(place.layer),
      mixer_(make_mixer(kind, place)),
      norm_{place.prefix + ".norm.weight",
            {place.config.width},
            norm_init(place.config.zero_centred_norms),
            false,
            Partition(place.ranks.group(parallel::Group::tensor)).replicated()},
      gradient_rounding_(place.config.product_formats(place.layer - 1).quantised()
                             ? Rounding::measured
                             : Rounding::none) {}

std::string Layer::prefix() const { return fmt::format("{}.{}", name_, kind_->scope); }

std::vector<Parameter> Layer::parameters() const {
  std::vector<Parameter> all = mixer_->parameters();
  all.push_back(norm_);
  return all;
}

std::vector<Parameter> Layer::parameters(Recorder& recorder, bool later) const {
  const PostponedOps& weights = recorder.kept<Saved>(*this).weights;
  std::vector<Parameter> some = parameters();
  std::erase_if(some, [&](const Parameter& parameter) {
    const Use gradient = write(recorder.gradient(parameter));
    const bool is_later = std::ranges::any_of(weights.ops, [&](const PostponedOps::One& one) {
      return std::ranges::any_of(one.op.uses, [&](const Use& use) {
        return use.tensor == gradient.tensor && use.access != Access::read;
      });
    });
    return is_later != later;
  });
  return some;
}

Stream Layer::forward(Recorder& recorder, Stream stream) const {
  recorder.set_prefix(prefix());
  const auto layer = recorder.program().enter("layer", index_, recorder.batch().slot);
  const auto scope = recorder.program().enter(kind_->scope, index_, recorder.batch().slot);
  const Tensor normed = norm(recorder, stream);
  add_stream_squares(recorder, recorder.kept<Saved>(*this).rstd, epsilon_, index_);
  return {recorder.kept<Saved>(*this).sum, mixer_->forward(recorder, normed)};
}

Stream Layer::decode(Recorder& recorder, Stream stream) const {
  recorder.set_prefix(prefix());
  const auto layer = recorder.program().enter("layer", index_, recorder.batch().slot);
  const auto scope = recorder.program().enter(kind_->scope, index_, recorder.batch().slot);
  const Tensor normed = norm(recorder, stream);
  const Tensor delta = mixer_->decode(recorder, normed);
  if (!delta)
    execution::throw_usage(
        "model.pattern: layer {} is '{}' ({}), which has no form for one more token of a sequence",
        index_, kind_->letter, kind_->name);
  return {recorder.kept<Saved>(*this).sum, delta};
}

Tensor Layer::norm(Recorder& recorder, const Stream& stream) const {
  const std::int64_t n = recorder.rows();
  Saved& kept = recorder.kept<Saved>(*this);
  const Rounding rounding = mixer_->input_rounding();
  kept.normed = saved(recorder, rounding, "normed", {n, width_}, kind_->input_module);
  kept.amax = measure(recorder, rounding, kept.normed);
  kept.rstd = recorder.saved("rstd", recorder.accumulation(), {n}, kind_->norm_module);
  kept.sum = stream.delta ? recorder.saved("sum", {n, width_}, kind_->norm_module) : stream.x;
  record_norm(recorder, stream, kept);
  return kept.normed;
}

/// The norm is of the stored sum, so it can be repeated without what was added to it.
void Layer::record_norm(Recorder& recorder, const Stream& stream, const Saved& kept) const {
  const Tensor w = recorder.parameter(norm_);
  const kernels::AddRmsnormForward of_sum{.rows = recorder.rows(),
                                          .width = width_,
                                          .storage = recorder.storage(),
                                          .residual = false,
                                          .eps = epsilon_,
                                          .measured = static_cast<bool>(kept.amax),
                                          .zero_centred = zero_centred_};
  const kernels::OperandsOf<kernels::AddRmsnormForward, Tensor> again{.x = kept.sum,
                                                                      .delta = {},
                                                                      .w = w,
                                                                      .sum = {},
                                                                      .y = kept.normed,
                                                                      .rstd = kept.rstd,
                                                                      .amax = kept.amax};
  if (!stream.delta) return recorder.compute("norm", of_sum, again);
  kernels::AddRmsnormForward with_residual = of_sum;
  with_residual.residual = true;
  recorder.compute("norm", with_residual,
                   {.x = stream.x,
                    .delta = stream.delta,
                    .w = w,
                    .sum = kept.sum,
                    .y = kept.normed,
                    .rstd = kept.rstd,
                    .amax = kept.amax});
  recorder.rerun_only("norm_again", of_sum, again);
}

Tensor Layer::backward(Recorder& recorder, Tensor dsum) const {
  recorder.set_prefix(prefix());
  const int slot = recorder.batch().slot;
  const auto layer = recorder.program().enter("layer", index_, slot, true);
  const auto scope = recorder.program().enter(kind_->scope, index_, slot, true);
  Saved& kept = recorder.kept<Saved>(*this);
  PostponedOps last;
  recorder.postpone_weights_to(&kept.weights, &last);
  const Tensor dnormed = mixer_->backward(recorder, dsum);
  recorder.postpone_weights_to(nullptr, nullptr);
  const Tensor dx = recorder.scratch("dsum", {recorder.rows(), width_});
  const kernels::RmsnormBackward norm{.rows = recorder.rows(),
                                      .width = width_,
                                      .storage = recorder.storage(),
                                      .residual = true,
                                      .accumulate = recorder.batch().accumulate,
                                      .measured = gradient_rounding_ != Rounding::none,
                                      .zero_centred = zero_centred_};
  const Tensor workspace = recorder.workspace("norm_workspace", norm.workspace_bytes());
  recorder.compute("norm_backward", norm,
                   {.dy = dnormed,
                    .x = kept.sum,
                    .w = recorder.parameter(norm_),
                    .rstd = kept.rstd,
                    .dresidual = dsum,
                    .dx = dx,
                    .dw = recorder.gradient(norm_),
                    .workspace = workspace,
                    .amax = measure(recorder, gradient_rounding_, dx)});
  recorder.append_postponed(last);
  return dx;
}

void Layer::backward_weights(Recorder& recorder) const {
  const int slot = recorder.batch().slot;
  const auto layer = recorder.program().enter("layer", index_, slot, true);
  const auto scope = recorder.program().enter(kind_->scope, index_, slot, true);
  recorder.append_postponed(recorder.kept<Saved>(*this).weights);
}

}  // namespace stowage::layers
