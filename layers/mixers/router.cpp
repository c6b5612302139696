#include "layers/mixers/router.hpp"

#include "kernels/moe/balance.hpp"

namespace stowage::layers {

using execution::Dtype;
using Views = std::span<const execution::View>;

namespace {

kernels::RouterOptions options_of(const ModelConfig::Moe& moe, int layer, double aux_scale) {
  kernels::RouterOptions options;
  options.experts = moe.experts;
  options.topk = moe.topk;
  options.groups = moe.groups;
  options.group_topk = moe.group_topk;
  options.sigmoid = moe.sigmoid;
  options.normalise = moe.normalise;
  options.scaling = moe.scaling;
  options.aux_coeff = moe.aux_coeff;
  options.z_coeff = moe.z_coeff;
  options.aux_scale = aux_scale;
  options.load = moe.forced_load;
  options.layer = layer;
  return options;
}

}  // namespace

Router::Router(const ModelConfig& config, const Partition& tensor, const std::string& prefix,
               int layer, double aux_scale)
    : options_(options_of(config.moe, layer, aux_scale)),
      bias_rate_(config.moe.bias_rate),
      frozen_tokens_(config.moe.frozen_tokens),
      prefix_(prefix),
      gate_{{prefix + ".router.weight",
             {config.moe.experts, config.width},
             Init::normal,
             true,
             tensor.replicated()}} {}

kernels::RouterOptions Router::options(const Recorder& recorder) const {
  kernels::RouterOptions options = options_;
  options.rows = recorder.batch().row_tokens;
  return options;
}

execution::TensorInfo Router::bias_info(Precision precision) const {
  return execution::one_buffer(prefix_ + ".router.bias", precision.accumulation(),
                               {options_.experts}, execution::Lifetime::optimizer_state);
}

execution::TensorInfo Router::frozen_info() const {
  return execution::one_buffer(prefix_ + ".router.frozen", Dtype::int32,
                               {frozen_tokens_, options_.topk},
                               execution::Lifetime::optimizer_state);
}

std::vector<execution::TensorInfo> Router::states(Precision precision) const {
  if (frozen_tokens_ > 0) return {bias_info(precision), frozen_info()};
  return {bias_info(precision)};
}

Tensor Router::bias(Recorder& recorder) const {
  return recorder.program().add(bias_info({recorder.storage()}));
}

Choices Router::forward(Recorder& recorder, Tensor x) const {
  const std::int64_t n = recorder.rows();
  const Dtype accum = recorder.accumulation();
  Choices choices;
  choices.logits = recorder.saved("router_logits", accum, {n, options_.experts}, "");
  gate_.forward(recorder, "router", x, choices.logits);
  if (frozen_tokens_ > 0)
    choices.indices = recorder.program().add(frozen_info());
  else
    choices.indices = recorder.saved("indices", Dtype::int32, {n, options_.topk}, "");
  choices.weights = recorder.saved("weights", accum, {n, options_.topk}, "");
  choose(recorder, choices);
  return choices;
}

void Router::choose(Recorder& recorder, const Choices& choices) const {
  const std::int64_t n = recorder.rows();
  const Dtype accum = recorder.accumulation();
  const kernels::RouterOptions options = this->options(recorder);
  if (frozen_tokens_ > 0)
    recorder.compute("weights", kernels::router_weights_cost(n, options, accum),
                     {read(choices.logits), read(choices.indices), write(choices.weights)},
                     [options](execution::Queue& q, Views v) {
                       kernels::router_weights(q, options, v[0], v[1], v[2]);
                     });
  else
    recorder.compute("select", kernels::router_select_cost(n, options, accum, true),
                     {read(choices.logits), read(bias(recorder)), read(recorder.batch().cu_seqlens),
                      write(choices.indices), write(choices.weights)},
                     [options](execution::Queue& q, Views v) {
                       kernels::router_select(q, options, v[0], v[1], v[2], v[3], v[4]);
                     });
}

void Router::count(Recorder& recorder, const Choices& choices) const {
  const Dtype accum = recorder.accumulation();
  const bool accumulate = recorder.batch().accumulate;
  Tensor& load = recorder.kept_of_step<Load>(*this).rows;
  if (!accumulate)
    load = recorder.program().scratch(prefix_ + ".router.load", accum, {options_.experts});
  recorder.compute("expert_load", kernels::expert_load_cost(options_.experts, accum),
                   {read(choices.load), recorder.into(load)},
                   [accumulate](execution::Queue& q, Views v) {
                     kernels::expert_load(q, v[0], v[1], accumulate);
                   });
  add_losses(recorder, choices);
}

void Router::add_losses(Recorder& recorder, const Choices& choices) const {
  const Tensor losses = recorder.program().find(kRouterLosses);
  if (!losses) return;
  const kernels::RouterOptions options = this->options(recorder);
  recorder.compute("router_losses",
                   kernels::router_losses_cost(recorder.rows(), options, recorder.accumulation()),
                   {read(choices.logits), read(choices.offsets), read(recorder.batch().cu_seqlens),
                    update(losses)},
                   [options](execution::Queue& q, Views v) {
                     kernels::router_losses(q, options, v[0], v[1], v[2], v[3], true);
                   });
}

void Router::backward(Recorder& recorder, const Choices& choices, Tensor x, Tensor dweights,
                      Tensor token_row, Tensor dx) const {
  const auto scope = recorder.program().enter("moe_router", -1, recorder.batch().slot, true);
  const kernels::RouterOptions options = this->options(recorder);
  const Dtype accum = recorder.accumulation();
  const Tensor dlogits = recorder.scratch("drouter", accum, {recorder.rows(), options.experts});
  recorder.compute(
      "router_backward", kernels::router_backward_cost(recorder.rows(), options, accum),
      {read(dweights), read(token_row), read(choices.logits), read(choices.indices),
       read(choices.weights), read(choices.offsets), read(recorder.batch().cu_seqlens),
       write(dlogits)},
      [options](execution::Queue& q, Views v) {
        kernels::router_backward(q, options, v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]);
      });
  gate_.backward(recorder, "router_gate_backward", dlogits, x, dx);
}

void Router::update_bias(Recorder& recorder, Tensor step_ok) const {
  const double rate = bias_rate_;
  recorder.compute("bias_update",
                   kernels::expert_bias_update_cost(options_.experts, recorder.accumulation()),
                   {read(load(recorder)), update(bias(recorder)), read(step_ok)},
                   [rate](execution::Queue& q, Views v) {
                     kernels::expert_bias_update(q, v[0], v[1], rate, v[2]);
                   });
}

}  // namespace stowage::layers
