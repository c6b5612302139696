#include "layers/mixers/feed_forward.hpp"

#include "kernels/activation/activation.hpp"

namespace stowage::layers {

using kernels::activation_width;

namespace {

/// Rows of fc1: those of the gate and of what it gates each have their share on every rank.
std::vector<Block> blocks(kernels::Activation activation, std::int64_t ffn) {
  return std::vector<Block>(static_cast<std::size_t>(activation_width(activation, 1)), ffn);
}

}  // namespace

FeedForward::FeedForward(const MixerPlace& place, std::int64_t ffn, const char* key,
                         const char* part, std::string module)
    : ffn_(place.tensor().share(ffn, key)),
      activation_(place.config.mlp.activation),
      module_(std::move(module)),
      fc1_{{place.prefix + part + ".fc1.weight",
            {activation_width(activation_, ffn), place.config.width},
            Init::normal,
            true,
            "dense",
            place.tensor().cut(0, blocks(activation_, ffn))},
           place.formats()},
      fc2_{{place.prefix + part + ".fc2.weight",
            {place.config.width, ffn},
            Init::residual_normal,
            true,
            "dense",
            place.tensor().cut(1, {ffn})},
           place.formats()},
      parameters_{fc2_.weight, fc1_.weight} {}

Tensor FeedForward::hidden(Recorder& recorder, const std::string& name, const AllRows& x) const {
  const std::int64_t n = recorder.tokens();
  Tensor& hidden = recorder.kept<Hidden>(*this).fc1_out;
  hidden = recorder.saved(name + "fc1_out", {n, fc1_.outputs()}, module_);
  for (const RowBlock& some : x.blocks)
    fc1_.forward(recorder, name + "fc1" + some.suffix, x.of(some), {hidden, some.rows});
  return activate(recorder, name + "act", hidden);
}

void FeedForward::out(Recorder& recorder, const std::string& name, Tensor active, const SomeRows& y,
                      const RowBlock& some) const {
  fc2_.forward(recorder, name + "fc2" + some.suffix, fc2_input(active, some.rows), y);
}

Tensor FeedForward::hidden_gradient(Recorder& recorder, const std::string& name, const AllRows& dy,
                                    WeightsPosition position) const {
  const std::int64_t n = recorder.tokens();
  const Tensor hidden = recorder.kept<Hidden>(*this).fc1_out;
  const Tensor active = activate(recorder, name + "act_again", hidden);
  fc2_.backward_weight(recorder, name + "fc2_weight_backward", dy.all, fc2_input(active), position);
  const Tensor dactive = recorder.scratch(name + "dact", {n, ffn_});
  for (const RowBlock& some : dy.blocks)
    fc2_.backward_input(recorder, name + "fc2_backward" + some.suffix, dy.of(some),
                        {dactive, some.rows});
  const Tensor dhidden = recorder.scratch(name + "dfc1", {n, fc1_.outputs()});
  const Tensor amax = measure(recorder, fc1_.rounding(1), dhidden);
  recorder.compute(name + "act_backward",
                   kernels::ActivationBackward{.kind = activation_,
                                               .rows = n,
                                               .columns = ffn_,
                                               .storage = recorder.storage(),
                                               .measured = static_cast<bool>(amax)},
                   {.dy = dactive,
                    .x = hidden,
                    .row_weight = {},
                    .dx = dhidden,
                    .drow_weight = {},
                    .valid_rows = {},
                    .amax = amax});
  return dhidden;
}

void FeedForward::input_gradient(Recorder& recorder, const std::string& name, Tensor dhidden,
                                 Tensor dx, bool accumulate) const {
  fc1_.backward_input(recorder, name + "fc1_backward", dhidden, dx, accumulate);
}

void FeedForward::weight_gradient(Recorder& recorder, const std::string& name, Tensor dhidden,
                                  Tensor x, WeightsPosition position) const {
  fc1_.backward_weight(recorder, name + "fc1_weight_backward", dhidden, x, position);
}

Tensor FeedForward::activate(Recorder& recorder, const std::string& name, Tensor hidden) const {
  if (fc2_.quantised()) {
    save_activated(recorder, hidden, module_);
    return hidden;
  }
  const std::int64_t n = recorder.tokens();
  const Tensor active = recorder.scratch(name, {n, ffn_});
  recorder.compute(
      name,
      kernels::ActivationForward{
          .kind = activation_, .rows = n, .columns = ffn_, .storage = recorder.storage()},
      {.x = hidden, .row_weight = {}, .y = active, .valid_rows = {}});
  return active;
}

}  // namespace stowage::layers
