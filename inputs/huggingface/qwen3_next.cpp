// Qwen3-Next and the text models of Qwen3.5, dense and with experts (transformers' models
// qwen3_next, qwen3_5 and qwen3_5_moe): three layers of gated DeltaNet for one of gated attention.
#include "inputs/huggingface/family.hpp"

namespace stowage::inputs::huggingface::detail {
namespace {

using enum Meaning;

template <class T>
void append(std::vector<T>& rows, const std::vector<T>& more) {
  rows.insert(rows.end(), more.begin(), more.end());
}

std::vector<NameRow> common_names() {
  return {
      {"", "embedding.weight", {"{trunk}embed_tokens.weight"}},
      {"", "final_norm.weight", {"{trunk}norm.weight"}},
      {"", "output.weight", {"lm_head.weight"}},
      {"*G", "norm.weight", {"input_layernorm.weight"}},
      {"*",
       "attn.qkv.weight",
       {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"},
       Form::gated_query_key_value},
      {"*", "attn.gate.weight", {"self_attn.q_proj.weight"}, Form::query_gate},
      {"*", "attn.proj.weight", {"self_attn.o_proj.weight"}},
      {"*", "attn.q_norm.weight", {"self_attn.q_norm.weight"}},
      {"*", "attn.k_norm.weight", {"self_attn.k_norm.weight"}},
      {"G", "delta.conv1d.weight", {"linear_attn.conv1d.weight"}, Form::convolution},
      {"G", "delta.A_log", {"linear_attn.A_log"}},
      {"G", "delta.dt_bias", {"linear_attn.dt_bias"}},
      {"G", "delta.norm.weight", {"linear_attn.norm.weight"}},
      {"G", "delta.out_proj.weight", {"linear_attn.out_proj.weight"}},
  };
}

NameRow one_projection() {
  return {"G",
          "delta.in_proj.weight",
          {"linear_attn.in_proj_qkvz.weight", "linear_attn.in_proj_ba.weight"},
          Form::delta_heads};
}

NameRow four_projections() {
  return {"G",
          "delta.in_proj.weight",
          {"linear_attn.in_proj_z.weight", "linear_attn.in_proj_qkv.weight",
           "linear_attn.in_proj_b.weight", "linear_attn.in_proj_a.weight"},
          Form::delta_projection};
}

std::vector<NameRow> mlp_names() {
  return {{"-", "norm.weight", {"post_attention_layernorm.weight"}},
          {"-", "mlp.fc1.weight", {"mlp.gate_proj.weight", "mlp.up_proj.weight"}},
          {"-", "mlp.fc2.weight", {"mlp.down_proj.weight"}}};
}

std::vector<NameRow> expert_names() {
  std::vector<NameRow> rows = qwen_expert_names();
  append<NameRow>(rows,
                  {{"E",
                    "shared.fc1.weight",
                    {"mlp.shared_expert.gate_proj.weight", "mlp.shared_expert.up_proj.weight"}},
                   {"E", "shared.fc2.weight", {"mlp.shared_expert.down_proj.weight"}},
                   {"E", "shared.gate.weight", {"mlp.shared_expert_gate.weight"}}});
  return rows;
}

std::vector<NameRow> names(const NameRow& projection, const std::vector<NameRow>& feed_forward) {
  std::vector<NameRow> rows = common_names();
  rows.push_back(projection);
  append(rows, feed_forward);
  return rows;
}

/// What all have but sizes with defaults of each family's own.
std::vector<ConfigRow> with_common(std::vector<ConfigRow> rows) {
  append<ConfigRow>(
      rows, {
                {pattern, {"layer_types"}, "model.pattern"},
                {period, {"full_attention_interval"}, "", "4"},
                {same, {"num_attention_heads"}, "model.num_attention_heads", "16", "*"},
                {same, {"head_dim"}, "model.head_dim", "256", "*"},
                {same, {"linear_num_key_heads"}, "model.delta_num_key_heads", "16", "G"},
                {same, {"linear_num_value_heads"}, "model.delta_num_value_heads", "32", "G"},
                {same, {"linear_key_head_dim"}, "model.delta_key_head_dim", "128", "G"},
                {same, {"linear_value_head_dim"}, "model.delta_value_head_dim", "128", "G"},
                {same, {"linear_conv_kernel_dim"}, "model.delta_conv_width", "4", "G"},
                {ours_fixed, {}, "model.delta_decay", "\"head\"", "G"},
                {same, {"hidden_act"}, "model.activation", "\"silu\""},
                {same, {"rms_norm_eps"}, "model.norm_epsilon", "1e-6"},
                {same, {"initializer_range"}, "model.init_std", "0.02"},
                {opposite, {"tie_word_embeddings"}, "model.untie_embeddings", "false"},
                {rope,
                 {"rope_parameters", "rope_scaling"},
                 "model.rope_theta",
                 "{\"rope_theta\": 10000.0}",
                 "*"},
                {rotary_part, {"partial_rotary_factor"}, "model.rotary_percent", "0.25", "*"},
                {ours_fixed, {}, "model.position_embedding", "\"rope\"", "*"},
                {ours_fixed, {}, "model.qk_layernorm", "true", "*"},
                {ours_fixed, {}, "model.attention_output_gate", "true", "*"},
                {ours_fixed, {}, "model.apply_layernorm_1p", "true"},
                {fixed, {"attn_output_gate"}, "", "true", "", "attention without an output gate"},
                {fixed, {"attention_bias"}, "", "false", "", "biases of attention"},
                {fixed, {"attention_dropout"}, "", "0.0", "", "dropout"},
                {ignored,
                 {"max_position_embeddings", "mamba_ssm_dtype", "mtp_num_hidden_layers",
                  "mtp_use_dedicated_embeddings"}},
            });
  return rows;
}

/// @param shared width of the shared expert
std::vector<ConfigRow> with_experts(std::vector<ConfigRow> rows, std::string_view experts,
                                    std::string_view topk) {
  append<ConfigRow>(
      rows, {
                {same, {"num_experts", "num_local_experts"}, "model.num_moe_experts", experts, "E"},
                {same, {"num_experts_per_tok"}, "model.moe_router_topk", topk, "E"},
                {same, {"moe_intermediate_size"}, "model.moe_ffn_hidden_size", "512", "E"},
                {positive,
                 {"shared_expert_intermediate_size"},
                 "model.moe_shared_expert_hidden_size",
                 "512",
                 "E"},
                {ours_fixed, {}, "model.moe_shared_expert_gate", "true", "E"},
                {ours_fixed, {}, "model.moe_score_function", "\"softmax\"", "E"},
                {ours_fixed, {}, "model.moe_expert_bias_update_rate", "0.0", "E"},
                {fixed, {"mlp_only_layers"}, "", "[]", "", "MLPs among the layers of experts"},
                {ignored, {"intermediate_size", "router_aux_loss_coef"}},
            });
  return rows;
}

std::vector<ConfigRow> next() {
  return with_experts(
      with_common({
          {same, {"vocab_size"}, "model.vocab_size", "151936"},
          {same, {"hidden_size"}, "model.hidden_size", "2048"},
          {same, {"num_key_value_heads"}, "model.num_query_groups", "2", "*"},
          {same, {"norm_topk_prob"}, "model.moe_norm_topk_prob", "true", "E"},
          {fixed, {"decoder_sparse_step"}, "", "1", "", "MLPs among the layers of experts"},
      }),
      "512", "10");
}

std::vector<ConfigRow> dense() {
  return with_common({
      {same, {"vocab_size"}, "model.vocab_size", "248320"},
      {same, {"hidden_size"}, "model.hidden_size", "4096"},
      {same, {"num_key_value_heads"}, "model.num_query_groups", "4", "*"},
      {same, {"intermediate_size"}, "model.ffn_hidden_size", "12288", "-"},
      {fixed, {"mlp_only_layers"}, "", "[]", "", "a list of layers with an MLP"},
  });
}

std::vector<ConfigRow> with_experts() {
  return with_experts(with_common({
                          {same, {"vocab_size"}, "model.vocab_size", "248320"},
                          {same, {"hidden_size"}, "model.hidden_size", "2048"},
                          {same, {"num_key_value_heads"}, "model.num_query_groups", "2", "*"},
                      }),
                      "256", "8");
}

std::vector<Word> layer_words(std::string_view delta, std::string_view attention) {
  return {{"linear_attention", delta}, {"full_attention", attention}};
}

}  // namespace

const Family kQwen3Next = {.model_type = "qwen3_next",
                           .architecture = "Qwen3NextForCausalLM",
                           .trunks = {"model."},
                           .block = "",
                           .words = layer_words("GE", "*E"),
                           .names = names(one_projection(), expert_names()),
                           .config = next(),
                           .left_out = {"mtp.*"}};

const Family kQwen35 = {.model_type = "qwen3_5_text",
                        .architecture = "Qwen3_5ForCausalLM",
                        .trunks = {"model."},
                        .block = "",
                        .words = layer_words("G-", "*-"),
                        .names = names(four_projections(), mlp_names()),
                        .config = dense(),
                        .left_out = {"mtp.*"}};

const Family kQwen35Moe = {.model_type = "qwen3_5_moe_text",
                           .architecture = "Qwen3_5MoeForCausalLM",
                           .trunks = {"model."},
                           .block = "",
                           .words = layer_words("GE", "*E"),
                           .names = names(four_projections(), expert_names()),
                           .config = with_experts(),
                           .left_out = {"mtp.*"}};

}  // namespace stowage::inputs::huggingface::detail
