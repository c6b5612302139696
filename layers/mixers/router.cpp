#include "layers/mixers/router.hpp"

#include "kernels/moe/balance.hpp"

namespace stowage::layers {

using execution::Dtype;

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

/// C + 1, the elements of cu_seqlens.
std::int64_t starts(const Recorder& recorder) {
  return recorder.buffer(recorder.batch().cu_seqlens).elements();
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
  const kernels::RouterWeights weigh{
      .tokens = recorder.rows(), .options = options(recorder), .storage = recorder.storage()};
  if (frozen_tokens_ > 0)
    return recorder.compute(
        "weights", weigh,
        {.logits = choices.logits, .indices = choices.indices, .weights = choices.weights});
  recorder.compute("select",
                   kernels::RouterSelect{.tokens = weigh.tokens,
                                         .options = weigh.options,
                                         .starts = starts(recorder),
                                         .storage = weigh.storage,
                                         .bias = true,
                                         .weights = true},
                   {.logits = choices.logits,
                    .bias = bias(recorder),
                    .cu_seqlens = recorder.batch().cu_seqlens,
                    .indices = choices.indices,
                    .weights = choices.weights});
}

void Router::count(Recorder& recorder, const Choices& choices) const {
  const Dtype accum = recorder.accumulation();
  const bool accumulate = recorder.batch().later;
  Tensor& load = recorder.kept_of_step<Load>(*this).rows;
  if (!accumulate)
    load = recorder.program().scratch(prefix_ + ".router.load", accum, {options_.experts});
  recorder.compute(
      "expert_load",
      kernels::ExpertLoad{
          .experts = options_.experts, .storage = recorder.storage(), .accumulate = accumulate},
      {.offsets = choices.load, .load = load});
  add_losses(recorder, choices);
}

void Router::add_losses(Recorder& recorder, const Choices& choices) const {
  SomeRows losses = recorder.program().find(kRouterLosses);
  if (!losses.whole) return;
  const Tensor by_layer = recorder.program().find(kLayerLosses);
  if (by_layer) {
    const std::int64_t first = std::int64_t{2} * options_.layer;
    losses = {by_layer, {first, first + 2}};
  }
  recorder.compute("router_losses",
                   kernels::RouterLosses{.tokens = recorder.rows(),
                                         .options = options(recorder),
                                         .starts = starts(recorder),
                                         .storage = recorder.storage(),
                                         .accumulate = !by_layer},
                   {.logits = choices.logits,
                    .offsets = choices.offsets,
                    .cu_seqlens = recorder.batch().cu_seqlens,
                    .losses = losses});
}

void Router::backward(Recorder& recorder, const Choices& choices, Tensor x, Tensor dweights,
                      Tensor token_row, Tensor dx) const {
  const auto scope = recorder.program().enter("moe_router", -1, recorder.batch().slot, true);
  const Tensor dlogits =
      recorder.scratch("drouter", recorder.accumulation(), {recorder.rows(), options_.experts});
  recorder.compute("router_backward",
                   kernels::RouterBackward{.tokens = recorder.rows(),
                                           .options = options(recorder),
                                           .starts = starts(recorder),
                                           .storage = recorder.storage()},
                   {.dweights_rows = dweights,
                    .token_row = token_row,
                    .logits = choices.logits,
                    .indices = choices.indices,
                    .weights = choices.weights,
                    .offsets = choices.offsets,
                    .cu_seqlens = recorder.batch().cu_seqlens,
                    .dlogits = dlogits});
  gate_.backward(recorder, "router_gate_backward", dlogits, x, dx);
}

void Router::update_bias(Recorder& recorder, Tensor step_ok) const {
  recorder.compute(
      "bias_update",
      kernels::ExpertBiasUpdate{
          .experts = options_.experts, .storage = recorder.storage(), .rate = bias_rate_},
      {.load = load(recorder), .bias = bias(recorder), .step_ok = step_ok});
}

}  // namespace stowage::layers
