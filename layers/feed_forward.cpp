#include "layers/feed_forward.hpp"

namespace stowage::layers {

using Views = std::span<const execution::View>;
using kernels::activation_width;

FeedForward::FeedForward(const ModelConfig& config, std::int64_t ffn, const std::string& prefix,
                         std::string module)
    : width_(config.width),
      ffn_(ffn),
      activation_(config.mlp.activation),
      module_(std::move(module)),
      fc1_{{prefix + ".fc1.weight",
            {activation_width(activation_, ffn), config.width},
            Init::normal,
            true}},
      fc2_{{prefix + ".fc2.weight", {config.width, ffn}, Init::residual_normal, true}},
      parameters_{fc2_.weight, fc1_.weight} {}

Tensor FeedForward::forward(Recorder& recorder, const std::string& name, Tensor x) const {
  const std::int64_t n = recorder.tokens();
  Tensor& hidden = recorder.kept<Hidden>(*this).fc1_out;
  hidden = recorder.saved(name + "fc1_out", {n, fc1_.outputs()}, module_);
  fc1_.forward(recorder, name + "fc1", x, hidden);
  const Tensor active = recorder.scratch(name + "act_out", {n, ffn_});
  recorder.compute(
      name + "act", kernels::activation_forward_cost(activation_, n, ffn_, recorder.storage()),
      {read(hidden), write(active)}, [kind = activation_](execution::Queue& q, Views v) {
        kernels::activation_forward(q, kind, v[0], {}, v[1]);
      });
  const Tensor y = recorder.scratch(name + "out", {n, width_});
  fc2_.forward(recorder, name + "fc2", active, y);
  return y;
}

void FeedForward::backward(Recorder& recorder, const std::string& name, Tensor dy, Tensor x,
                           Tensor dx, bool accumulate) const {
  const std::int64_t n = recorder.tokens();
  const Tensor hidden = recorder.kept<Hidden>(*this).fc1_out;
  const Tensor active = recorder.scratch(name + "act_again", {n, ffn_});
  recorder.compute(name + "act_again",
                   kernels::activation_forward_cost(activation_, n, ffn_, recorder.storage()),
                   {read(hidden), write(active)},
                   [kind = activation_](execution::Queue& q, Views v) {
                     kernels::activation_forward(q, kind, v[0], {}, v[1]);
                   });
  fc2_.backward_weight(recorder, name + "fc2_weight_backward", dy, active);
  const Tensor dactive = recorder.scratch(name + "dact", {n, ffn_});
  fc2_.backward_input(recorder, name + "fc2_backward", dy, dactive);
  const Tensor dhidden = recorder.scratch(name + "dfc1", {n, fc1_.outputs()});
  recorder.compute(name + "act_backward",
                   kernels::activation_backward_cost(activation_, n, ffn_, recorder.storage()),
                   {read(dactive), read(hidden), write(dhidden)},
                   [kind = activation_](execution::Queue& q, Views v) {
                     kernels::activation_backward(q, kind, v[0], v[1], {}, v[2], {});
                   });
  fc1_.backward_weight(recorder, name + "fc1_weight_backward", dhidden, x);
  fc1_.backward_input(recorder, name + "fc1_backward", dhidden, dx, accumulate);
}

}  // namespace stowage::layers
