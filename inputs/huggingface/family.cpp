#include "inputs/huggingface/family.hpp"

#include <array>
#include <string>

#include "execution/error.hpp"

namespace stowage::inputs::huggingface {

std::span<const Family* const> families() {
  static constexpr std::array<const Family*, 8> kAll = {
      &detail::kNemotronH, &detail::kLlama,     &detail::kMamba2, &detail::kQwen3,
      &detail::kQwen3Moe,  &detail::kQwen3Next, &detail::kQwen35, &detail::kQwen35Moe};
  return kAll;
}

namespace {

/// Families that people ask for, and what the layers would need first.
constexpr std::array<Word, 7> kMissing = {
    {{"bamba", "a table of its names and keys"},
     {"qwen3_5", "images; of its text_config alone, a folder of model_type qwen3_5_text"},
     {"qwen3_5_moe", "images; of its text_config alone, a folder of model_type qwen3_5_moe_text"},
     {"granitemoehybrid", "factors on embedding, residual stream, attention and logits"},
     {"falcon_h1", "attention and Mamba side by side in one layer"},
     {"zamba2", "attention that layers share"},
     {"gpt2", "LayerNorm, biases and learned positions"}}};

}  // namespace

const Family& family_of(std::string_view model_type, std::string_view origin) {
  std::string known;
  for (const Family* family : families()) {
    if (family->model_type == model_type) return *family;
    known += (known.empty() ? "" : ", ") + std::string(family->model_type);
  }
  for (const Word& missing : kMissing)
    if (missing.theirs == model_type)
      execution::throw_usage("{}: model_type '{}' is not supported: {}; allowed: {}", origin,
                             model_type, missing.ours, known);
  execution::throw_usage("{}: model_type '{}' is not known; allowed: {}", origin, model_type,
                         known);
}

std::span<const Word> words() {
  static constexpr std::array<Word, 2> kWords = {{{"relu2", "squared_relu"}, {"silu", "swiglu"}}};
  return kWords;
}

std::span<const Word> dtype_words() {
  static constexpr std::array<Word, 3> kWords = {
      {{"bfloat16", "bf16"}, {"float32", "fp32"}, {"float64", "fp64"}}};
  return kWords;
}

std::span<const Word> scaling_words() {
  static constexpr std::array<Word, 4> kWords = {
      {{"factor", "model.rope_scaling_factor"},
       {"low_freq_factor", "model.rope_scaling_low_freq_factor"},
       {"high_freq_factor", "model.rope_scaling_high_freq_factor"},
       {"original_max_position_embeddings", "model.rope_scaling_positions"}}};
  return kWords;
}

std::span<const std::string_view> training_keys() {
  static constexpr auto kKeys = std::to_array<std::string_view>(
      {"model.init_std", "model.mamba_chunk_size", "model.mamba_mixer", "model.moe_aux_loss_coeff",
       "model.moe_z_loss_coeff", "model.moe_expert_bias_update_rate",
       "model.mtp_loss_scaling_factor"});
  return kKeys;
}

std::vector<std::string_view> keys_of(const ConfigRow& row) {
  if (row.meaning == Meaning::limits) return {"model.mamba_dt_min", "model.mamba_dt_max"};
  if (row.meaning == Meaning::further)
    return {"model.mtp_num_layers", "model.mtp_use_repeated_layer"};
  std::vector<std::string_view> keys;
  if (!row.ours.empty()) keys.push_back(row.ours);
  if (row.meaning == Meaning::rope)
    for (const Word& word : scaling_words()) keys.push_back(word.ours);
  return keys;
}

std::span<const std::string_view> common_keys() {
  static constexpr auto kKeys = std::to_array<std::string_view>(
      {// what the file is, and how the weights are stored
       "model_type", "architectures", "auto_map", "transformers_version", "_name_or_path",
       "name_or_path", "_commit_hash", "torch_dtype", "dtype",
       // the tokenizer
       "tokenizer_class", "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "prefix",
       // which code computes attention, to the same result
       "_attn_implementation", "_attn_implementation_autoset", "attn_implementation",
       "use_flash_attn", "unsloth_fixed", "unsloth_version", "torchscript",
       "chunk_size_feed_forward",
       // what a call returns, and heads of other tasks
       "use_cache", "return_dict", "return_dict_in_generate", "output_router_logits",
       "output_hidden_states", "output_attentions", "output_scores", "is_encoder_decoder",
       "id2label", "label2id", "problem_type", "finetuning_task", "task_specific_params",
       // generation of text
       "max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups",
       "diversity_penalty", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty",
       "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids",
       "num_return_sequences", "forced_bos_token_id", "forced_eos_token_id",
       "remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens",
       "begin_suppress_tokens"});
  return kKeys;
}

}  // namespace stowage::inputs::huggingface
