// Nemotron-H, Nemotron Nano 2 and Nemotron 3 (transformers' models/nemotron_h).
#include "inputs/huggingface/family.hpp"

namespace stowage::inputs::huggingface::detail {
namespace {

std::vector<NameRow> names() {
  return {
      {"", "embedding.weight", {"{trunk}embeddings.weight"}},
      {"", "final_norm.weight", {"{trunk}norm_f.weight"}},
      {"", "output.weight", {"lm_head.weight"}},
      {"", "mtp.embedding_norm.weight", {"{first}enorm.weight"}},
      {"", "mtp.hidden_norm.weight", {"{first}hnorm.weight"}},
      {"", "mtp.embedding_proj.weight", {"{first}eh_proj.weight"}, Form::left_columns},
      {"", "mtp.hidden_proj.weight", {"{first}eh_proj.weight"}, Form::right_columns},
      {"", "mtp.final_norm.weight", {"{last}final_layernorm.weight"}},
      {"M*-E", "norm.weight", {"norm.weight"}},
      {"M", "mamba.in_proj.weight", {"mixer.in_proj.weight"}},
      {"M", "mamba.conv1d.weight", {"mixer.conv1d.weight"}, Form::convolution},
      {"M", "mamba.conv1d.bias", {"mixer.conv1d.bias"}},
      {"M", "mamba.A_log", {"mixer.A_log"}},
      {"M", "mamba.D", {"mixer.D"}},
      {"M", "mamba.dt_bias", {"mixer.dt_bias"}},
      {"M", "mamba.norm.weight", {"mixer.norm.weight"}},
      {"M", "mamba.out_proj.weight", {"mixer.out_proj.weight"}},
      {"*",
       "attn.qkv.weight",
       {"mixer.q_proj.weight", "mixer.k_proj.weight", "mixer.v_proj.weight"},
       Form::query_key_value},
      {"*", "attn.proj.weight", {"mixer.o_proj.weight"}},
      {"-", "mlp.fc1.weight", {"mixer.up_proj.weight"}},
      {"-", "mlp.fc2.weight", {"mixer.down_proj.weight"}},
      {"E", "router.weight", {"mixer.gate.weight"}},
      {"E", "router.bias", {"mixer.gate.e_score_correction_bias"}},
      {"E", "experts.fc1.weight", {"mixer.experts.{e}.up_proj.weight"}},
      {"E", "experts.fc2.weight", {"mixer.experts.{e}.down_proj.weight"}},
      {"E", "latent.fc1.weight", {"mixer.fc1_latent_proj.weight"}},
      {"E", "latent.fc2.weight", {"mixer.fc2_latent_proj.weight"}},
      {"E", "shared.fc1.weight", {"mixer.shared_experts.up_proj.weight"}},
      {"E", "shared.fc2.weight", {"mixer.shared_experts.down_proj.weight"}},
  };
}

using enum Meaning;

std::vector<ConfigRow> sizes() {
  return {
      {pattern, {"layers_block_type", "layer_types", "hybrid_override_pattern"}, "model.pattern"},
      {further, {"num_nextn_predict_layers"}, "model.mtp_num_layers", "0"},
      {further_pattern,
       {"mtp_layers_block_type", "mtp_hybrid_override_pattern"},
       "model.mtp_pattern",
       R"(["full_attention", "moe"])"},
      {same, {"vocab_size"}, "model.vocab_size", "131072"},
      {same, {"hidden_size"}, "model.hidden_size", "4096"},
      {same, {"layer_norm_epsilon", "rms_norm_eps", "norm_eps"}, "model.norm_epsilon", "1e-5"},
      {same, {"initializer_range"}, "model.init_std", "0.02"},
      {same, {"num_attention_heads"}, "model.num_attention_heads", "32", "*"},
      {same, {"num_key_value_heads"}, "model.num_query_groups", "8", "*"},
      {same, {"head_dim", "attention_head_dim"}, "model.head_dim", "128", "*"},
      {same, {"intermediate_size"}, "model.ffn_hidden_size", "21504", "-"},
      {same, {"mamba_num_heads"}, "model.mamba_num_heads", "128", "M"},
      {same, {"mamba_head_dim"}, "model.mamba_head_dim", "64", "M"},
      {same, {"n_groups", "mamba_n_groups"}, "model.mamba_num_groups", "8", "M"},
      {same, {"ssm_state_size"}, "model.mamba_state_dim", "128", "M"},
      {same, {"conv_kernel", "mamba_d_conv"}, "model.mamba_conv_width", "4", "M"},
      {same, {"chunk_size", "mamba_chunk_size"}, "model.mamba_chunk_size", "128", "M"},
      {limits, {"time_step_limit", "mamba_dt_limit"}, "", "[0.0, Infinity]", "M"},
      {same, {"n_routed_experts", "num_local_experts"}, "model.num_moe_experts", "8", "E"},
      {same, {"num_experts_per_tok"}, "model.moe_router_topk", "2", "E"},
      {same, {"moe_intermediate_size"}, "model.moe_ffn_hidden_size", "7688", "E"},
      {or_null, {"moe_latent_size"}, "model.moe_latent_size", "null", "E"},
      {positive,
       {"moe_shared_expert_intermediate_size"},
       "model.moe_shared_expert_hidden_size",
       "7688",
       "E"},
      {same, {"routed_scaling_factor"}, "model.moe_router_topk_scaling_factor", "1.0", "E"},
      {same, {"n_group"}, "model.moe_num_groups", "1", "E"},
      {same, {"topk_group"}, "model.moe_group_topk", "1", "E"},
      {same, {"norm_topk_prob"}, "model.moe_norm_topk_prob", "true", "E"},
  };
}

std::vector<ConfigRow> fixed_rows() {
  return {
      {same, {"mlp_hidden_act"}, "model.activation", "\"relu2\"", "-E"},
      {fixed, {"tie_word_embeddings"}, "", "false", "", "the family has a head of its own"},
      {fixed, {"sliding_window"}, "", "null", "", "attention in a window"},
      {fixed, {"attention_bias"}, "", "false", "", "biases of attention"},
      {fixed, {"mlp_bias"}, "", "false", "", "biases of MLPs"},
      {fixed, {"use_bias", "mamba_proj_bias"}, "", "false", "", "biases of Mamba's projections"},
      {fixed, {"use_conv_bias", "mamba_conv_bias"}, "", "true", "", "convolution without a bias"},
      {fixed, {"mamba_hidden_act"}, "", "\"silu\"", "", "another activation of the convolution"},
      {fixed, {"hidden_dropout"}, "", "0.0", "", "dropout"},
      {fixed, {"attention_dropout"}, "", "0.0", "", "dropout"},
      {fixed, {"residual_in_fp32"}, "", "false", "", "a residual stream wider than the weights"},
  };
}

std::vector<ConfigRow> ignored_rows() {
  return {{ignored,
           {"num_hidden_layers", "expand", "mamba_expand", "time_step_min", "time_step_max",
            "time_step_floor", "mamba_dt_min", "mamba_dt_max", "mamba_dt_init_floor",
            "max_position_embeddings", "rope_theta", "partial_rotary_factor", "n_shared_experts",
            "moe_shared_expert_overlap", "use_mamba_kernels", "mamba_ssm_cache_dtype",
            "rescale_prenorm_residual", "num_logits_to_keep"}}};
}

std::vector<ConfigRow> config() {
  std::vector<ConfigRow> rows = sizes();
  for (const auto& part : {fixed_rows(), ignored_rows()})
    rows.insert(rows.end(), part.begin(), part.end());
  return rows;
}

}  // namespace

const Family kNemotronH = {.model_type = "nemotron_h",
                           .architecture = "NemotronHForCausalLM",
                           .trunks = {"backbone.", "model."},
                           .block = "",
                           .words = {{"linear_attention", "M"},
                                     {"mamba", "M"},
                                     {"full_attention", "*"},
                                     {"attention", "*"},
                                     {"mlp", "-"},
                                     {"moe", "E"}},
                           .names = names(),
                           .config = config(),
                           .further = "mtp.",
                           .left_out = {}};

}  // namespace stowage::inputs::huggingface::detail
