// Mamba-2 as transformers writes it (models/mamba2). Its gated norm knows no groups.
#include "inputs/huggingface/family.hpp"

namespace stowage::inputs::huggingface::detail {
namespace {

using enum Meaning;

std::vector<NameRow> names() {
  return {
      {"", "embedding.weight", {"{trunk}embeddings.weight"}},
      {"", "final_norm.weight", {"{trunk}norm_f.weight"}},
      {"", "output.weight", {"lm_head.weight"}},
      {"M", "norm.weight", {"norm.weight"}},
      {"M", "mamba.in_proj.weight", {"mixer.in_proj.weight"}},
      {"M", "mamba.conv1d.weight", {"mixer.conv1d.weight"}, Form::convolution},
      {"M", "mamba.conv1d.bias", {"mixer.conv1d.bias"}},
      {"M", "mamba.A_log", {"mixer.A_log"}},
      {"M", "mamba.D", {"mixer.D"}},
      {"M", "mamba.dt_bias", {"mixer.dt_bias"}},
      {"M", "mamba.norm.weight", {"mixer.norm.weight"}},
      {"M", "mamba.out_proj.weight", {"mixer.out_proj.weight"}},
  };
}

std::vector<ConfigRow> config() {
  return {
      {layers, {"num_hidden_layers"}, "model.pattern", "64"},
      {same, {"vocab_size"}, "model.vocab_size", "32768"},
      {same, {"hidden_size"}, "model.hidden_size", "4096"},
      {opposite, {"tie_word_embeddings"}, "model.untie_embeddings", "false"},
      {same, {"layer_norm_epsilon"}, "model.norm_epsilon", "1e-5"},
      {same, {"initializer_range"}, "model.init_std", "0.1"},
      {same, {"num_heads"}, "model.mamba_num_heads", "128"},
      {same, {"head_dim"}, "model.mamba_head_dim", "64"},
      {same, {"state_size"}, "model.mamba_state_dim", "128"},
      {same, {"conv_kernel"}, "model.mamba_conv_width", "4"},
      {same, {"chunk_size"}, "model.mamba_chunk_size", "256"},
      {limits, {"time_step_limit"}, "", "[0.0, Infinity]"},
      {fixed, {"n_groups"}, "", "1", "", "a gated norm over all groups at once"},
      {fixed, {"use_bias"}, "", "false", "", "biases of projections"},
      {fixed, {"use_conv_bias"}, "", "true", "", "convolution without a bias"},
      {fixed, {"hidden_act"}, "", "\"silu\"", "", "another activation of the convolution"},
      {ignored,
       {"expand", "residual_in_fp32", "rescale_prenorm_residual", "time_step_rank", "time_step_min",
        "time_step_max", "time_step_floor", "rms_norm", "norm_before_gate", "intermediate_size",
        "time_step_init_scheme", "time_step_scale"}},
  };
}

}  // namespace

const Family kMamba2 = {.model_type = "mamba2",
                        .architecture = "Mamba2ForCausalLM",
                        .trunks = {"backbone."},
                        .block = "M",
                        .words = {},
                        .names = names(),
                        .config = config(),
                        .left_out = {}};

}  // namespace stowage::inputs::huggingface::detail
