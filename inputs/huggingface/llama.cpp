// Llama (transformers' models/llama): attention and gated MLP, two of our layers in one of theirs.
#include "inputs/huggingface/family.hpp"

namespace stowage::inputs::huggingface::detail {

std::vector<NameRow> llama_names() {
  return {
      {"", "embedding.weight", {"{trunk}embed_tokens.weight"}},
      {"", "final_norm.weight", {"{trunk}norm.weight"}},
      {"", "output.weight", {"lm_head.weight"}},
      {"*", "norm.weight", {"input_layernorm.weight"}},
      {"*",
       "attn.qkv.weight",
       {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"},
       Form::query_key_value},
      {"*", "attn.proj.weight", {"self_attn.o_proj.weight"}},
      {"-", "norm.weight", {"post_attention_layernorm.weight"}},
      {"-", "mlp.fc1.weight", {"mlp.gate_proj.weight", "mlp.up_proj.weight"}},
      {"-", "mlp.fc2.weight", {"mlp.down_proj.weight"}},
  };
}

namespace {

using enum Meaning;

std::vector<ConfigRow> config() {
  return {
      {layers, {"num_hidden_layers"}, "model.pattern", "32"},
      {same, {"vocab_size"}, "model.vocab_size", "32000"},
      {same, {"hidden_size"}, "model.hidden_size", "4096"},
      {same, {"intermediate_size"}, "model.ffn_hidden_size", "11008"},
      {same, {"num_attention_heads"}, "model.num_attention_heads", "32"},
      {same, {"num_key_value_heads"}, "model.num_query_groups", "0"},
      {same, {"head_dim"}, "model.head_dim", "0"},
      {same, {"hidden_act"}, "model.activation", "\"silu\""},
      {same, {"rms_norm_eps"}, "model.norm_epsilon", "1e-6"},
      {same, {"initializer_range"}, "model.init_std", "0.02"},
      {opposite, {"tie_word_embeddings"}, "model.untie_embeddings", "false"},
      {rope, {"rope_parameters", "rope_scaling"}, "model.rope_theta", "{\"rope_theta\": 10000.0}"},
      {ours_fixed, {}, "model.position_embedding", "\"rope\""},
      {fixed, {"attention_bias"}, "", "false", "", "biases of attention"},
      {fixed, {"mlp_bias"}, "", "false", "", "biases of MLPs"},
      {fixed, {"attention_dropout"}, "", "0.0", "", "dropout"},
      {ignored, {"max_position_embeddings", "pretraining_tp"}},
  };
}

}  // namespace

const Family kLlama = {.model_type = "llama",
                       .architecture = "LlamaForCausalLM",
                       .trunks = {"model."},
                       .block = "*-",
                       .words = {},
                       .names = llama_names(),
                       .config = config(),
                       .left_out = {"rotary_emb.inv_freq"}};

}  // namespace stowage::inputs::huggingface::detail
