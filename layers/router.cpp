#include "layers/router.hpp"

#include "kernels/moe/balance.hpp"
#include "kernels/moe/permute.hpp"

namespace stowage::layers {

using execution::Dtype;
using Views = std::span<const execution::View>;

namespace {

kernels::RouterOptions options_of(const ModelConfig::Moe& moe, double aux_scale) {
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
  return options;
}

}  // namespace

Router::Router(const ModelConfig& config, const std::string& prefix, double aux_scale)
    : options_(options_of(config.moe, aux_scale)),
      bias_rate_(config.moe.bias_rate),
      frozen_tokens_(config.moe.frozen_tokens),
      prefix_(prefix),
      gate_{{prefix + ".router.weight", {config.moe.experts, config.width}, Init::normal, true}} {}

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

Routing Router::forward(Recorder& recorder, Tensor x) const {
  const auto scope = recorder.program().enter("moe_router", -1, recorder.batch().slot);
  const std::int64_t n = recorder.rows();
  const std::int64_t rows = n * options_.topk;
  const Dtype accum = recorder.accumulation();
  Routing r;
  r.logits = recorder.saved("router_logits", accum, {n, options_.experts}, "");
  gate_.forward(recorder, "router", x, r.logits);
  if (frozen_tokens_ > 0)
    r.indices = recorder.program().add(frozen_info());
  else
    r.indices = recorder.saved("indices", Dtype::int32, {n, options_.topk}, "");
  r.weights = recorder.saved("weights", accum, {n, options_.topk}, "");
  r.offsets = recorder.saved("offsets", Dtype::int32, {options_.experts + 1}, "");
  r.token_row = recorder.saved("token_row", Dtype::int32, {n, options_.topk}, "");
  r.row_weight = recorder.saved("row_weight", accum, {rows}, "");
  choose(recorder, r);
  return r;
}

void Router::choose(Recorder& recorder, const Routing& r) const {
  const std::int64_t n = recorder.rows();
  const Dtype accum = recorder.accumulation();
  const kernels::RouterOptions options = options_;
  if (frozen_tokens_ > 0)
    recorder.compute("weights", kernels::router_weights_cost(n, options, accum),
                     {read(r.logits), read(r.indices), write(r.weights)},
                     [options](execution::Queue& q, Views v) {
                       kernels::router_weights(q, options, v[0], v[1], v[2]);
                     });
  else
    recorder.compute("select", kernels::router_select_cost(n, options, accum, true),
                     {read(r.logits), read(bias(recorder)), read(recorder.batch().cu_seqlens),
                      write(r.indices), write(r.weights)},
                     [options](execution::Queue& q, Views v) {
                       kernels::router_select(q, options, v[0], v[1], v[2], v[3], v[4]);
                     });
  recorder.compute(
      "permute_index", kernels::permute_index_cost(n, options.topk, options.experts, accum),
      {read(r.indices), write(r.offsets), write(r.token_row), write(r.row_weight), read(r.weights)},
      [](execution::Queue& q, Views v) {
        kernels::permute_index(q, v[0], v[1], v[2], v[3], v[4]);
      });
}

void Router::count(Recorder& recorder, const Routing& routing) const {
  const Dtype accum = recorder.accumulation();
  const bool accumulate = recorder.batch().accumulate;
  Tensor& load = recorder.kept_of_step<Load>(*this).rows;
  if (!accumulate)
    load = recorder.program().scratch(prefix_ + ".router.load", accum, {options_.experts});
  recorder.compute("expert_load", kernels::expert_load_cost(options_.experts, accum),
                   {read(routing.offsets), recorder.into(load)},
                   [accumulate](execution::Queue& q, Views v) {
                     kernels::expert_load(q, v[0], v[1], accumulate);
                   });
  add_losses(recorder, routing);
}

void Router::add_losses(Recorder& recorder, const Routing& routing) const {
  const Tensor losses = recorder.program().find(kRouterLosses);
  if (!losses) return;
  const kernels::RouterOptions options = options_;
  recorder.compute("router_losses",
                   kernels::router_losses_cost(recorder.rows(), options, recorder.accumulation()),
                   {read(routing.logits), read(routing.offsets), read(recorder.batch().cu_seqlens),
                    update(losses)},
                   [options](execution::Queue& q, Views v) {
                     kernels::router_losses(q, options, v[0], v[1], v[2], v[3], true);
                   });
}

void Router::backward(Recorder& recorder, const Routing& r, Tensor x, Tensor drow_weight,
                      Tensor dx) const {
  const auto scope = recorder.program().enter("moe_router", -1, recorder.batch().slot, true);
  const kernels::RouterOptions options = options_;
  const Dtype accum = recorder.accumulation();
  const Tensor dlogits = recorder.scratch("drouter", accum, {recorder.rows(), options.experts});
  recorder.compute(
      "router_backward", kernels::router_backward_cost(recorder.rows(), options, accum),
      {read(drow_weight), read(r.token_row), read(r.logits), read(r.indices), read(r.weights),
       read(r.offsets), read(recorder.batch().cu_seqlens), write(dlogits)},
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
