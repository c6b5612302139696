// Rows of [model].
#include "inputs/deck/registry.hpp"

namespace stowage::inputs::detail {

using std::string;

namespace {

std::vector<Parameter> common_rows() {
  return {
      {.key = "model.pattern",
       .fallback = string(),
       .numerics = true,
       .help = "One letter a layer: M Mamba-2, * attention, - dense MLP, E mixture of experts; | "
               "marks a pipeline cut."},
      {.key = "model.hidden_size",
       .fallback = 128,
       .range = between(1, kMostWidth),
       .numerics = true,
       .help = "Model width D."},
      {.key = "model.vocab_size",
       .fallback = 256,
       .range = between(1, 2147483647),
       .numerics = true,
       .help = "Vocabulary V; 256 for text, whose tokens are bytes."},
      {.key = "model.untie_embeddings",
       .fallback = true,
       .numerics = true,
       .help = "The output head has weights of its own instead of the embedding's."},
      {.key = "model.norm_epsilon",
       .fallback = 1e-5,
       .range = above(0),
       .numerics = true,
       .help = "Added to the mean square in every RMSNorm."},
      {.key = "model.init_std",
       .fallback = 0.02,
       .range = above(0),
       .numerics = true,
       .help = "Deviation of initial weights; projections into the residual stream have init_std / "
               "sqrt(2 * layers)."},
  };
}

std::vector<Parameter> attention_rows() {
  return {
      {.key = "model.num_attention_heads",
       .fallback = 4,
       .range = between(1, kMostCount),
       .numerics = true,
       .help = "Query heads H of an attention layer."},
      {.key = "model.num_query_groups",
       .fallback = 0,
       .range = between(0, kMostCount),
       .numerics = true,
       .help = "Key-value heads K; divides the query heads. 0: as many as query heads."},
      {.key = "model.head_dim",
       .fallback = 0,
       .range = between(0, kMostWidth),
       .numerics = true,
       .help = "Width P of an attention head (Megatron's kv_channels). 0: hidden_size / heads."},
      {.key = "model.position_embedding",
       .fallback = string("none"),
       .allowed = {"none", "rope"},
       .numerics = true,
       .help = "Positions of attention: none, or rotary embedding."},
      {.key = "model.rope_theta",
       .fallback = 10000.0,
       .range = above(0),
       .numerics = true,
       .help = "Base of the rotary frequencies."},
      {.key = "model.rope_scaling_factor",
       .fallback = 1.0,
       .range = at_least(1),
       .numerics = true,
       .help = "How much slower long rotary waves turn, as in Llama 3.1 (rope_type llama3). 1: "
               "none."},
      {.key = "model.rope_scaling_low_freq_factor",
       .fallback = 1.0,
       .range = above(0),
       .numerics = true,
       .help = "Waves of which model.rope_scaling_positions hold fewer than this are slowed in "
               "full."},
      {.key = "model.rope_scaling_high_freq_factor",
       .fallback = 4.0,
       .range = above(0),
       .numerics = true,
       .help = "Waves of which they hold more than this stay; above "
               "model.rope_scaling_low_freq_factor."},
      {.key = "model.rope_scaling_positions",
       .fallback = 8192.0,
       .unit = "tokens",
       .range = above(0),
       .numerics = true,
       .help = "Positions that the model was first trained on "
               "(original_max_position_embeddings)."},
      {.key = "model.qk_layernorm",
       .fallback = false,
       .numerics = true,
       .help =
           "RMSNorm of each query and key head, with a weight of its width for each, before the "
           "positions."},
      {.key = "model.ffn_hidden_size",
       .fallback = 0,
       .range = between(0, 16 * kMostWidth),
       .numerics = true,
       .help = "Width F of a dense MLP. 0: 4 * hidden_size."},
      {.key = "model.activation",
       .fallback = string("squared_relu"),
       .allowed = {"squared_relu", "swiglu"},
       .numerics = true,
       .help = "Activation of dense MLP, experts and shared expert."},
  };
}

std::vector<Parameter> mamba_rows() {
  return {
      {.key = "model.mamba_num_heads",
       .fallback = 0,
       .range = between(0, 2 * kMostWidth),
       .numerics = true,
       .help = "Heads of a Mamba-2 layer; heads * mamba_head_dim is its inner width d_inner. 0: "
               "d_inner is 2 * hidden_size."},
      {.key = "model.mamba_head_dim",
       .fallback = 64,
       .range = between(1, kMostWidth),
       .numerics = true,
       .help = "Width P of a Mamba-2 head."},
      {.key = "model.mamba_num_groups",
       .fallback = 1,
       .range = between(1, kMostCount),
       .numerics = true,
       .help = "Groups G that share B and C; divides the Mamba heads."},
      {.key = "model.mamba_state_dim",
       .fallback = 64,
       .range = between(1, kMostWidth),
       .numerics = true,
       .help = "State size N of a Mamba-2 head."},
      {.key = "model.mamba_chunk_size",
       .fallback = 128,
       .unit = "tokens",
       .range = between(1, 4096),
       .numerics = true,
       .help = "Chunk Q of the scan; changes the order of sums, not the function."},
      {.key = "model.mamba_conv_width",
       .fallback = 4,
       .unit = "tokens",
       .range = between(1, 16),
       .numerics = true,
       .help = "Width of the causal depthwise convolution."},
      {.key = "model.mamba_mixer",
       .fallback = string("separate"),
       .allowed = {"separate", "fused_forward", "fused"},
       .numerics = true,
       .help = "Convolution and scan of a Mamba-2 layer: separate operators; one in forward, the "
               "convolution's output is saved as before (mamba_ssm); or one in both directions "
               "that makes it again in backward: then mamba_conv saves nothing, and mamba_ssm the "
               "outputs of in_proj and of the scan."},
      {.key = "model.mamba_dt_min",
       .fallback = 0.0,
       .range = at_least(0),
       .numerics = true,
       .help = "Lower clamp of the step size after softplus."},
      {.key = "model.mamba_dt_max",
       .fallback = kInfinity,
       .range = above_or_infinite(0),
       .numerics = true,
       .help = "Upper clamp of the step size after softplus."},
  };
}

std::vector<Parameter> expert_rows() {
  return {
      {.key = "model.num_moe_experts",
       .fallback = 8,
       .range = between(1, kMostCount),
       .numerics = true,
       .help = "Experts E of a mixture layer."},
      {.key = "model.moe_router_topk",
       .fallback = 2,
       .range = between(1, kMostCount),
       .numerics = true,
       .help = "Experts R that a token is routed to."},
      {.key = "model.moe_ffn_hidden_size",
       .fallback = 0,
       .range = between(0, 16 * kMostWidth),
       .numerics = true,
       .help = "Width F of one expert. 0: ffn_hidden_size."},
      {.key = "model.moe_shared_expert_hidden_size",
       .fallback = 0,
       .range = between(0, 16 * kMostWidth),
       .numerics = true,
       .help = "Width of the expert that every token takes. 0: none."},
      {.key = "model.moe_score_function",
       .fallback = string("sigmoid"),
       .allowed = {"sigmoid", "softmax"},
       .numerics = true,
       .help = "From router logits to scores."},
      {.key = "model.moe_num_groups",
       .fallback = 1,
       .range = between(1, kMostCount),
       .numerics = true,
       .help = "Groups of experts for group-limited routing; divides the experts."},
      {.key = "model.moe_group_topk",
       .fallback = 1,
       .range = between(1, kMostCount),
       .numerics = true,
       .help = "Groups that a token may choose experts from."},
      {.key = "model.moe_norm_topk_prob",
       .fallback = true,
       .numerics = true,
       .help = "Divide the chosen scores by their sum."},
      {.key = "model.moe_router_topk_scaling_factor",
       .fallback = 1.0,
       .range = above(0),
       .numerics = true,
       .help = "Factor on the chosen scores."},
      {.key = "model.moe_aux_loss_coeff",
       .fallback = 0.0,
       .range = at_least(0),
       .numerics = true,
       .help = "Weight of the load-balancing loss."},
      {.key = "model.moe_z_loss_coeff",
       .fallback = 0.0,
       .range = at_least(0),
       .numerics = true,
       .help = "Weight of the squared log-sum-exp of router logits."},
      {.key = "model.moe_expert_bias_update_rate",
       .fallback = 1e-3,
       .range = at_least(0),
       .numerics = true,
       .help = "Step of the selection bias that balances experts without a loss. 0: no bias."},
      {.key = "model.moe_router_force_load",
       .fallback = string("none"),
       .allowed = {"none", "balanced", "zipf"},
       .numerics = true,
       .help = "For benchmarks: a token's experts are drawn whatever their scores are, all alike, "
               "or the one in place p of a layer p times less likely than the first. Weights stay "
               "those of the scores. Such a run is not official."},
  };
}

}  // namespace

std::vector<Parameter> model_parameters() {
  std::vector<Parameter> rows = common_rows();
  for (const auto& part : {attention_rows(), mamba_rows(), expert_rows()}) {
    rows.insert(rows.end(), part.begin(), part.end());
  }
  return rows;
}

}  // namespace stowage::inputs::detail
