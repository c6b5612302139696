#include "layers/mixers/latent.hpp"

#include "kernels/norm/rmsnorm.hpp"

namespace stowage::layers {

namespace {
constexpr const char* kModule = "moe_latent";
}  // namespace

Latent::Latent(const MixerPlace& place)
    : width_(place.config.width),
      latent_(place.config.moe.latent),
      epsilon_(place.config.norm_epsilon),
      fc1_{{place.prefix + ".latent.fc1.weight",
            {latent_, width_},
            Init::normal,
            true,
            place.tensor().replicated(),
            {},
            {},
            {{latent_}}}},
      fc2_{{place.prefix + ".latent.fc2.weight",
            {width_, latent_},
            Init::residual_normal,
            true,
            place.tensor().replicated(),
            {},
            {},
            {{width_}}}} {
  if (place.config.moe.latent_norm)
    norm_ = {place.prefix + ".latent.norm.weight",
             {latent_},
             Init::ones,
             false,
             place.tensor().replicated()};
}

std::vector<Parameter> Latent::parameters() const {
  std::vector<Parameter> all{fc2_.weight};
  if (norm_) all.push_back(*norm_);
  all.push_back(fc1_.weight);
  return all;
}

Tensor Latent::narrow(Recorder& recorder, Tensor x) const {
  const Tensor rows = recorder.saved("latent", {recorder.rows(), latent_}, kModule);
  fc1_.forward(recorder, "latent_fc1", x, rows);
  return rows;
}

Tensor Latent::make_sum(Recorder& recorder) const {
  return recorder.kept<Saved>(*this).sum =
             recorder.saved("latent_sum", {recorder.rows(), latent_}, kModule);
}

Tensor Latent::normed(Recorder& recorder, const char* name) const {
  Saved& kept = recorder.kept<Saved>(*this);
  if (!norm_) return kept.sum;
  const std::int64_t n = recorder.rows();
  const Tensor y = recorder.scratch(name, {n, latent_});
  kept.rstd = recorder.scratch(std::string(name) + "_rstd", recorder.accumulation(), {n});
  recorder.compute(name,
                   kernels::AddRmsnormForward{.rows = n,
                                              .width = latent_,
                                              .storage = recorder.storage(),
                                              .residual = false,
                                              .eps = epsilon_},
                   {.x = kept.sum,
                    .delta = {},
                    .w = recorder.parameter(*norm_),
                    .sum = {},
                    .y = y,
                    .rstd = kept.rstd,
                    .amax = {}});
  return y;
}

Tensor Latent::widen(Recorder& recorder) const {
  const Tensor y = recorder.scratch("latent_out", {recorder.rows(), width_});
  fc2_.forward(recorder, "latent_fc2", normed(recorder, "latent_norm"), y);
  return y;
}

/// The norm is made again: it costs less than its bytes.
Tensor Latent::widen_backward(Recorder& recorder, Tensor dy) const {
  const std::int64_t n = recorder.rows();
  const Tensor x = normed(recorder, "latent_norm_again");
  const Tensor dx = recorder.scratch("dlatent_sum", {n, latent_});
  fc2_.backward_input(recorder, "latent_fc2_backward", dy, dx);
  fc2_.backward_weight(recorder, "latent_fc2_weight_backward", dy, x);
  if (!norm_) return dx;
  const Saved& kept = recorder.kept<Saved>(*this);
  const Tensor dsum = recorder.scratch("dlatent_norm", {n, latent_});
  const kernels::RmsnormBackward norm{.rows = n,
                                      .width = latent_,
                                      .storage = recorder.storage(),
                                      .residual = false,
                                      .accumulate = recorder.batch().accumulate};
  const Tensor workspace = recorder.workspace("latent_norm_workspace", norm.workspace_bytes());
  recorder.compute("latent_norm_backward", norm,
                   {.dy = dx,
                    .x = kept.sum,
                    .w = recorder.parameter(*norm_),
                    .rstd = kept.rstd,
                    .dresidual = {},
                    .dx = dsum,
                    .dw = recorder.gradient(*norm_),
                    .workspace = workspace,
                    .amax = {}});
  return dsum;
}

void Latent::narrow_backward(Recorder& recorder, Tensor x, Tensor drows, Tensor dx) const {
  fc1_.backward_input(recorder, "latent_fc1_backward", drows, dx);
  fc1_.backward_weight(recorder, "latent_fc1_weight_backward", drows, x);
}

}  // namespace stowage::layers
