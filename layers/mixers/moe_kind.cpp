// The kind of layer mixture of experts: its keys, its row.
#include <algorithm>

#include "inputs/data/run_section.hpp"
#include "inputs/deck/check.hpp"
#include "layers/mixers/feed_forward.hpp"
#include "layers/mixers/kinds.hpp"
#include "layers/recording/config_section.hpp"

namespace stowage::inputs {

using layers::ModelConfig;
using Moe = ModelConfig::Moe;

template <>
std::vector<Row<Moe>> rows<Moe>() {
  return {
      row(&Moe::experts, {.key = "model.num_moe_experts",
                          .range = between(1, kMostCount),
                          .numerics = true,
                          .help = "Experts E of a mixture layer."}),
      row(&Moe::topk, {.key = "model.moe_router_topk",
                       .range = between(1, kMostCount),
                       .numerics = true,
                       .help = "Experts R that a token is routed to."}),
      row(&Moe::ffn,
          {.key = "model.moe_ffn_hidden_size",
           .range = between(0, 16 * kMostWidth),
           .numerics = true,
           .help = "Width F of one expert. 0: ffn_hidden_size.",
           .derived = [](const Deck& deck) { return read(deck, &ModelConfig::Mlp::ffn); }}),
      row(&Moe::latent, {.key = "model.moe_latent_size",
                         .range = between(0, kMostWidth),
                         .numerics = true,
                         .help = "Latent width L that routed experts work in, between a projection "
                                 "down and one up (Nemotron 3 Super). The router and the shared "
                                 "expert keep hidden_size. 0: experts work in hidden_size."}),
      row(&Moe::latent_norm,
          {.key = "model.moe_latent_norm",
           .numerics = true,
           .help = "With moe_latent_size: RMSNorm of the sum of a token's experts, before the "
                   "projection up (Kimi K3)."}),
      row(&Moe::shared_ffn, {.key = "model.moe_shared_expert_hidden_size",
                             .range = between(0, 16 * kMostWidth),
                             .numerics = true,
                             .help = "Width of the expert that every token takes. 0: none."}),
      row(&Moe::shared_gate,
          {.key = "model.moe_shared_expert_gate",
           .numerics = true,
           .help = "The sigmoid of a logit of the token scales the shared expert's result."}),
      row(&Moe::sigmoid,
          {.key = "model.moe_score_function",
           .numerics = true,
           .help = "From router logits to scores."},
          {{"sigmoid", true}, {"softmax", false}}),
      row(&Moe::groups,
          {.key = "model.moe_num_groups",
           .range = between(1, kMostCount),
           .numerics = true,
           .help = "Groups of experts for group-limited routing; divides the experts."}),
      row(&Moe::group_topk, {.key = "model.moe_group_topk",
                             .range = between(1, kMostCount),
                             .numerics = true,
                             .help = "Groups that a token may choose experts from."}),
      row(&Moe::normalise, {.key = "model.moe_norm_topk_prob",
                            .numerics = true,
                            .help = "Divide the chosen scores by their sum."}),
      row(&Moe::scaling, {.key = "model.moe_router_topk_scaling_factor",
                          .range = above(0),
                          .numerics = true,
                          .help = "Factor on the chosen scores."}),
      row(&Moe::aux_coeff,
          {.key = "model.moe_aux_loss_coeff",
           .range = at_least(0),
           .numerics = true,
           .help =
               "Weight of the load-balancing loss. It is computed in each microbatch, and a step "
               "takes their mean, so train.micro_batch_size changes it."}),
      row(&Moe::z_coeff,
          {.key = "model.moe_z_loss_coeff",
           .range = at_least(0),
           .numerics = true,
           .help =
               "Weight of the squared log-sum-exp of router logits: a mean over the tokens of each "
               "microbatch, and then over microbatches, so train.micro_batch_size changes it."}),
      row(&Moe::bias_rate,
          {.key = "model.moe_expert_bias_update_rate",
           .range = at_least(0),
           .numerics = true,
           .help = "Step of the selection bias that balances experts without a loss. 0: no bias."}),
      row(&Moe::forced_load,
          {.key = "model.moe_router_force_load",
           .numerics = true,
           .help =
               "For benchmarks: a token's experts are drawn whatever their scores are, all alike, "
               "or the one in place p of a layer p times less likely than the first. Weights stay "
               "those of the scores. Such a run is not official."},
          {{"none", kernels::ForcedLoad::none},
           {"balanced", kernels::ForcedLoad::balanced},
           {"zipf", kernels::ForcedLoad::zipf}}),
  };
}

}  // namespace stowage::inputs

namespace stowage::layers {

using execution::throw_usage;
using inputs::check_product;
using inputs::cite;
using inputs::Deck;
using inputs::key;
using inputs::TrainConfig;

namespace {

void check_sizes(const ModelConfig& model, const Deck& deck) {
  using Moe = ModelConfig::Moe;
  const Moe& moe = model.moe;
  if (moe.shared_gate && moe.shared_ffn == 0)
    throw_usage("{} needs a shared expert: {} must be above 0", cite(deck, &Moe::shared_gate),
                key(&Moe::shared_ffn));
  if (moe.latent_norm && moe.latent == 0)
    throw_usage("{} needs a latent width: {} must be above 0", cite(deck, &Moe::latent_norm),
                key(&Moe::latent));
  check_at_most(deck, key(&Moe::latent), key(&ModelConfig::width));
  check_at_most(deck, key(&Moe::topk), key(&Moe::experts));
  check_divides(deck, key(&Moe::groups), key(&Moe::experts));
  check_at_most(deck, key(&Moe::group_topk), key(&Moe::groups));
  const int open = moe.group_topk * (moe.experts / moe.groups);
  if (moe.topk > open)
    throw_usage("{} is more than the {} experts of {} groups that a token may choose from ({}, {})",
                cite(deck, &Moe::topk), open, moe.group_topk, cite(deck, &Moe::groups),
                cite(deck, &Moe::experts));
  check_product(deck, "elements of the experts",
                {key(&Moe::experts), key(&ModelConfig::width), key(&Moe::ffn)});
  check_product(
      deck, "routed rows",
      {key(&TrainConfig::micro_batch_size), key(&TrainConfig::seq_length), key(&Moe::topk)},
      0x1p31 - 1);
}

StepFlops flops(const ModelConfig& model, const StepWork& work) {
  const ModelConfig::Moe& moe = model.moe;
  const std::int64_t width = moe.expert_width(model.width);
  const double latent = 4.0 * static_cast<double>(model.width) * static_cast<double>(moe.latent);
  const double products = work.tokens * (moe.topk * mlp_row_flops(model, width, moe.ffn) + latent +
                                         mlp_row_flops(model, model.width, moe.shared_ffn));
  const double logits = moe.experts + (moe.shared_ffn > 0 && moe.shared_gate ? 1 : 0);
  return {products + 2 * work.tokens * static_cast<double>(model.width) * logits, products};
}

void slim(ModelConfig& model) {
  ModelConfig::Moe& moe = model.moe;
  if (const int most = 2 * moe.topk * moe.groups; moe.experts > most) moe.experts = most;
  moe.ffn = std::min<std::int64_t>(moe.ffn, 64);
  moe.shared_ffn = std::min<std::int64_t>(moe.shared_ffn, 64);
  moe.latent = std::min<std::int64_t>(moe.latent, 64);
  moe.aux_coeff = moe.z_coeff = moe.bias_rate = 0;
}

constexpr std::string_view kGroup[] = {"expert_fc1", "moe_act"};
constexpr inputs::Module kModules[] = {
    {"shared_expert", "fc1 output before the activation (n, F)", "normed input"},
    {"moe_act", "the same, routed rows (n*R, F), sorted by expert", "normed input"},
    {"moe_latent", "latent rows (n, L), and the sum of their experts' (n, L)",
     "normed input; routed rows"},
    {.name = "group_mlp",
     .tensors = "`expert_fc1` and `moe_act` of a layer, as one item",
     .parts = kGroup}};

}  // namespace

constinit const Kind kinds::moe = {
    {.letter = 'E',
     .name = "mixture of experts",
     .scope = "moe",
     .inner_scope = "moe_router",
     .experts = true,
     .norm_module = "mlp_norm",
     .input_module = "expert_fc1",
     .modules = kModules},
    {.flops = flops, .rows = append_rows<&ModelConfig::moe>, .check = check_sizes, .slim = slim}};

}  // namespace stowage::layers
