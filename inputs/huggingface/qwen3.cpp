// Qwen3 and Qwen3-MoE (transformers' models/qwen3 and qwen3_moe): Llama's blocks with norms of
// query and key heads; the second one has experts where Llama has an MLP.
#include "inputs/huggingface/family.hpp"

namespace stowage::inputs::huggingface::detail {

std::vector<NameRow> qwen_expert_names() {
  return {
      {"E", "norm.weight", {"post_attention_layernorm.weight"}},
      {"E", "router.weight", {"mlp.gate.weight"}},
      {"E", "router.bias", {}, Form::absent},
      {"E",
       "experts.fc1.weight",
       {"mlp.experts.{e}.gate_proj.weight", "mlp.experts.{e}.up_proj.weight"}},
      {"E", "experts.fc2.weight", {"mlp.experts.{e}.down_proj.weight"}},
  };
}

namespace {

using enum Meaning;

std::vector<NameRow> names() {
  std::vector<NameRow> rows = llama_names();
  rows.push_back({"*", "attn.q_norm.weight", {"self_attn.q_norm.weight"}});
  rows.push_back({"*", "attn.k_norm.weight", {"self_attn.k_norm.weight"}});
  for (const NameRow& row : qwen_expert_names()) rows.push_back(row);
  return rows;
}

/// What both have; sizes have each family's defaults.
std::vector<ConfigRow> with_common(std::vector<ConfigRow> rows) {
  for (const ConfigRow& row : std::vector<ConfigRow>{
           {same, {"vocab_size"}, "model.vocab_size", "151936"},
           {same, {"num_attention_heads"}, "model.num_attention_heads", "32"},
           {same, {"head_dim"}, "model.head_dim", "128"},
           {same, {"hidden_act"}, "model.activation", "\"silu\""},
           {same, {"rms_norm_eps"}, "model.norm_epsilon", "1e-6"},
           {same, {"initializer_range"}, "model.init_std", "0.02"},
           {opposite, {"tie_word_embeddings"}, "model.untie_embeddings", "false"},
           {rope,
            {"rope_parameters", "rope_scaling"},
            "model.rope_theta",
            "{\"rope_theta\": 10000.0}"},
           {ours_fixed, {}, "model.position_embedding", "\"rope\""},
           {ours_fixed, {}, "model.qk_layernorm", "true"},
           {fixed, {"attention_bias"}, "", "false", "", "biases of attention"},
           {fixed, {"use_sliding_window"}, "", "false", "", "attention in a window"},
           {fixed, {"attention_dropout"}, "", "0.0", "", "dropout"},
           {words, {"layer_types"}},
           {ignored, {"max_position_embeddings", "sliding_window", "max_window_layers"}},
       })
    rows.push_back(row);
  return rows;
}

std::vector<ConfigRow> dense() {
  return with_common({
      {layers, {"num_hidden_layers"}, "model.pattern", "32"},
      {same, {"hidden_size"}, "model.hidden_size", "4096"},
      {same, {"num_key_value_heads"}, "model.num_query_groups", "32"},
      {same, {"intermediate_size"}, "model.ffn_hidden_size", "22016"},
  });
}

std::vector<ConfigRow> with_experts() {
  return with_common({
      {layers, {"num_hidden_layers"}, "model.pattern", "24"},
      {same, {"hidden_size"}, "model.hidden_size", "2048"},
      {same, {"num_key_value_heads"}, "model.num_query_groups", "4"},
      {same, {"num_experts", "num_local_experts"}, "model.num_moe_experts", "128"},
      {same, {"num_experts_per_tok"}, "model.moe_router_topk", "8"},
      {same, {"moe_intermediate_size"}, "model.moe_ffn_hidden_size", "768"},
      {same, {"norm_topk_prob"}, "model.moe_norm_topk_prob", "false"},
      {ours_fixed, {}, "model.moe_score_function", "\"softmax\""},
      {ours_fixed, {}, "model.moe_expert_bias_update_rate", "0.0"},
      {fixed, {"decoder_sparse_step"}, "", "1", "", "MLPs among the layers of experts"},
      {fixed, {"mlp_only_layers"}, "", "[]", "", "MLPs among the layers of experts"},
      {ignored, {"intermediate_size", "router_aux_loss_coef"}},
  });
}

}  // namespace

const Family kQwen3 = {.model_type = "qwen3",
                       .architecture = "Qwen3ForCausalLM",
                       .trunks = {"model."},
                       .block = "*-",
                       .words = {{"full_attention", "*-"}},
                       .names = names(),
                       .config = dense(),
                       .left_out = {"rotary_emb.inv_freq"}};

const Family kQwen3Moe = {.model_type = "qwen3_moe",
                          .architecture = "Qwen3MoeForCausalLM",
                          .trunks = {"model."},
                          .block = "*E",
                          .words = {{"full_attention", "*E"}},
                          .names = names(),
                          .config = with_experts(),
                          .left_out = {"rotary_emb.inv_freq"}};

}  // namespace stowage::inputs::huggingface::detail
