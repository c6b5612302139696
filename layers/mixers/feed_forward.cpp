#include "layers/mixers/feed_forward.hpp"

#include "kernels/activation/activation.hpp"
#include "kernels/activation/sigmoid.hpp"

namespace stowage::layers {

using kernels::activation_width;

namespace {

/// Rows of fc1: those of the gate and of what it gates each have their share on every rank.
std::vector<Block> blocks(kernels::Activation activation, std::int64_t ffn) {
  return std::vector<Block>(static_cast<std::size_t>(activation_width(activation, 1)), ffn);
}

}  // namespace

std::vector<Projection> hidden_projections(kernels::Activation activation, std::int64_t ffn) {
  return std::vector<Projection>(static_cast<std::size_t>(activation_width(activation, 1)), {ffn});
}

FeedForward::FeedForward(const MixerPlace& place, std::int64_t ffn, const char* key,
                         const char* part, std::string module, bool gated)
    : ffn_(place.tensor().share(ffn, key)),
      activation_(place.config.mlp.activation),
      module_(std::move(module)),
      fc1_{{place.prefix + part + ".fc1.weight",
            {activation_width(activation_, ffn), place.config.width},
            Init::normal,
            true,
            "dense",
            place.tensor().cut(0, blocks(activation_, ffn)),
            {},
            hidden_projections(activation_, ffn)},
           place.formats()},
      fc2_{{place.prefix + part + ".fc2.weight",
            {place.config.width, ffn},
            Init::residual_normal,
            true,
            "dense",
            place.tensor().cut(1, {ffn}),
            {},
            {{place.config.width}}},
           place.formats()},
      parameters_{fc2_.weight, fc1_.weight} {
  if (!gated) return;
  // A rank has some of the columns of the hidden rows, so the gradients are summands.
  gate_ = {{place.prefix + part + ".gate.weight",
            {1, place.config.width},
            Init::normal,
            true,
            place.tensor().replicated()}};
  parameters_.insert(parameters_.begin() + 1, gate_->weight);
}

Tensor FeedForward::hidden(Recorder& recorder, const std::string& name, const AllRows& x) const {
  const std::int64_t n = recorder.tokens();
  Hidden& hidden = recorder.kept<Hidden>(*this);
  hidden.fc1_out = recorder.saved(name + "fc1_out", {n, fc1_.outputs()}, module_);
  for (const RowBlock& some : x.blocks)
    fc1_.forward(recorder, name + "fc1" + some.suffix, x.of(some), {hidden.fc1_out, some.rows});
  if (gate_) hidden.row_weight = weigh(recorder, name, x);
  return activate(recorder, name + "act", hidden);
}

Tensor FeedForward::weigh(Recorder& recorder, const std::string& name, const AllRows& x) const {
  const std::int64_t n = recorder.tokens();
  const Tensor logits = recorder.scratch(name + "gate_logits", recorder.accumulation(), {n, 1});
  for (const RowBlock& some : x.blocks)
    gate_->forward(recorder, name + "gate" + some.suffix, x.of(some), {logits, some.rows});
  const Tensor weight = recorder.saved(name + "gate_weight", recorder.accumulation(), {n}, module_);
  recorder.compute(name + "gate_sigmoid",
                   kernels::SigmoidForward{.rows = n, .storage = recorder.storage()},
                   {.x = logits, .y = weight});
  return weight;
}

void FeedForward::out(Recorder& recorder, const std::string& name, Tensor active, const SomeRows& y,
                      const RowBlock& some) const {
  fc2_.forward(recorder, name + "fc2" + some.suffix, fc2_input(active, some.rows), y);
}

Tensor FeedForward::hidden_gradient(Recorder& recorder, const std::string& name, const AllRows& dy,
                                    WeightsPosition position) const {
  const std::int64_t n = recorder.tokens();
  Hidden& hidden = recorder.kept<Hidden>(*this);
  const Tensor active = activate(recorder, name + "act_again", hidden);
  fc2_.backward_weight(recorder, name + "fc2_weight_backward", dy.all, fc2_input(active), position);
  const Tensor dactive = recorder.scratch(name + "dact", {n, ffn_});
  for (const RowBlock& some : dy.blocks)
    fc2_.backward_input(recorder, name + "fc2_backward" + some.suffix, dy.of(some),
                        {dactive, some.rows});
  const Tensor dhidden = recorder.scratch(name + "dfc1", {n, fc1_.outputs()});
  const Tensor amax = measure(recorder, fc1_.rounding(), dhidden);
  const Tensor dweight =
      gate_ ? recorder.scratch(name + "dgate_weight", recorder.accumulation(), {n}) : Tensor{};
  recorder.compute(name + "act_backward",
                   kernels::ActivationBackward{.kind = activation_,
                                               .rows = n,
                                               .columns = ffn_,
                                               .storage = recorder.storage(),
                                               .weighted = gate_.has_value(),
                                               .measured = static_cast<bool>(amax)},
                   {.dy = dactive,
                    .x = hidden.fc1_out,
                    .row_weight = hidden.row_weight,
                    .dx = dhidden,
                    .drow_weight = dweight,
                    .valid_rows = {},
                    .amax = amax});
  if (!gate_) return dhidden;
  hidden.dlogits = recorder.scratch(name + "dgate_logits", recorder.accumulation(), {n, 1});
  recorder.compute(name + "gate_sigmoid_backward",
                   kernels::SigmoidBackward{.rows = n, .storage = recorder.storage()},
                   {.dy = dweight, .y = hidden.row_weight, .dx = hidden.dlogits});
  return dhidden;
}

void FeedForward::input_gradient(Recorder& recorder, const std::string& name, Tensor dhidden,
                                 Tensor x, Tensor dx, bool accumulate) const {
  fc1_.backward_input(recorder, name + "fc1_backward", dhidden, dx, accumulate);
  if (gate_)
    gate_->backward(recorder, name + "gate_backward", recorder.kept<Hidden>(*this).dlogits, x, dx);
}

void FeedForward::weight_gradient(Recorder& recorder, const std::string& name, Tensor dhidden,
                                  Tensor x, WeightsPosition position) const {
  fc1_.backward_weight(recorder, name + "fc1_weight_backward", dhidden, x, position);
}

Tensor FeedForward::activate(Recorder& recorder, const std::string& name,
                             const Hidden& hidden) const {
  if (fc2_activates()) {
    if (fc2_.formats.precision->saves_factors) save_activated(recorder, hidden.fc1_out, module_);
    return hidden.fc1_out;
  }
  const std::int64_t n = recorder.tokens();
  const Tensor active = recorder.scratch(name, {n, ffn_});
  recorder.compute(
      name,
      kernels::ActivationForward{.kind = activation_,
                                 .rows = n,
                                 .columns = ffn_,
                                 .storage = recorder.storage(),
                                 .weighted = gate_.has_value()},
      {.x = hidden.fc1_out, .row_weight = hidden.row_weight, .y = active, .valid_rows = {}});
  return active;
}

}  // namespace stowage::layers
