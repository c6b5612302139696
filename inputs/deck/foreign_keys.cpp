#include "inputs/deck/foreign_keys.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

#include "inputs/deck/registry.hpp"

namespace stowage::inputs {
namespace {

struct Foreign {
  std::string_view name;
  std::string_view instead;
};

constexpr std::string_view kLayers =
    "write model.pattern, which has a letter for each layer: \"*-*-\" is two blocks of attention "
    "and MLP";
constexpr std::string_view kWidth = "write model.hidden_size";
constexpr std::string_view kHeads = "write model.num_attention_heads";
constexpr std::string_view kGroups = "write model.num_query_groups";
constexpr std::string_view kHeadDim = "write model.head_dim";
constexpr std::string_view kFfn = "write model.ffn_hidden_size";
constexpr std::string_view kLength = "write train.seq_length";
constexpr std::string_view kSteps = "write run.steps";
constexpr std::string_view kRate = "write optim.lr";
constexpr std::string_view kLeastRate = "write optim.min_lr";
constexpr std::string_view kWarmup = "write optim.warmup_steps";
constexpr std::string_view kDecay = "write optim.decay_steps";
constexpr std::string_view kClip = "write optim.clip_grad";
constexpr std::string_view kMicro =
    "write train.micro_batch_size, sequences of a microbatch on one rank";
constexpr std::string_view kGlobal =
    "write train.global_batch_size, sequences of a step on all ranks";
constexpr std::string_view kBatch =
    "write train.global_batch_size (sequences of a step on all ranks) and train.micro_batch_size "
    "(of a microbatch on one rank)";
constexpr std::string_view kAccumulation =
    "there is no such key: microbatches of a step follow from train.global_batch_size and "
    "train.micro_batch_size";
constexpr std::string_view kEpsilon = "write model.norm_epsilon";
constexpr std::string_view kTied = "write model.untie_embeddings, which is the opposite";
constexpr std::string_view kNoDropout = "there is no dropout here: leave it out";
constexpr std::string_view kNoBias = "linear layers have no biases here: leave it out";
constexpr std::string_view kDtype = "write train.dtype";
constexpr std::string_view kExperts = "write model.num_moe_experts";
constexpr std::string_view kTopk = "write model.moe_router_topk";
constexpr std::string_view kTensor = "write parallel.tensor";
constexpr std::string_view kPipeline = "write parallel.pipeline";
constexpr std::string_view kContext = "write parallel.context";
constexpr std::string_view kExpertRanks = "write parallel.expert";
constexpr std::string_view kZero = "write parallel.zero";
constexpr std::string_view kRecompute = "write recompute.modules, a list of what is recomputed";
constexpr std::string_view kEvaluate = "write eval.interval";
constexpr std::string_view kSave = "write checkpoint.interval";
constexpr std::string_view kFolder = "write checkpoint.directory";
constexpr std::string_view kDevice = "write execution.backend";
constexpr std::string_view kTheta = "write model.rope_theta";
constexpr std::string_view kOptimizer = "write optim.optimizer, \"adamw\" or \"muon\"";
constexpr std::string_view kMix =
    "write data.mix, a list of NAME=PATH, and data.mix_weights, a list of their shares";
constexpr std::string_view kGraphs = "write graphs.mode";

/// Names in lower case with _; what is a key of ours by its name alone needs no row.
constexpr auto kForeign = std::to_array<Foreign>({
    // Size of the model.
    {"num_layers", kLayers},
    {"n_layer", kLayers},
    {"n_layers", kLayers},
    {"num_hidden_layers", kLayers},
    {"hybrid_override_pattern", "write model.pattern"},
    {"num_nextn_predict_layers", "write model.mtp_num_layers"},
    {"mtp_hybrid_override_pattern", "write model.mtp_pattern"},
    {"n_embd", kWidth},
    {"d_model", kWidth},
    {"dim", kWidth},
    {"n_head", kHeads},
    {"n_heads", kHeads},
    {"num_heads", kHeads},
    {"num_key_value_heads", kGroups},
    {"n_kv_heads", kGroups},
    {"kv_channels", kHeadDim},
    {"intermediate_size", kFfn},
    {"d_ff", kFfn},
    {"n_inner", kFfn},
    {"hidden_act", "write model.activation"},
    {"hidden_activation", "write model.activation"},
    {"vocabulary_size", "write model.vocab_size"},
    {"padded_vocab_size", "write model.vocab_size"},
    {"make_vocab_size_divisible_by", "there is no padding of the vocabulary: leave it out"},
    {"rms_norm_eps", kEpsilon},
    {"layer_norm_eps", kEpsilon},
    {"layer_norm_epsilon", kEpsilon},
    {"layernorm_epsilon", kEpsilon},
    {"norm_eps", kEpsilon},
    {"tie_word_embeddings", kTied},
    {"untie_embeddings_and_output_weights", "write model.untie_embeddings"},
    {"initializer_range", "write model.init_std"},
    {"init_method_std", "write model.init_std"},
    {"rotary_base", kTheta},
    {"rope_base", kTheta},
    {"position_embedding_type", "write model.position_embedding"},
    {"dropout", kNoDropout},
    {"hidden_dropout", kNoDropout},
    {"attention_dropout", kNoDropout},
    {"bias", kNoBias},
    {"attention_bias", kNoBias},
    {"add_bias_linear", kNoBias},
    // Experts and Mamba.
    {"num_experts", kExperts},
    {"num_local_experts", kExperts},
    {"n_routed_experts", kExperts},
    {"num_experts_per_tok", kTopk},
    {"moe_intermediate_size", "write model.moe_ffn_hidden_size"},
    {"router_aux_loss_coef", "write model.moe_aux_loss_coeff"},
    {"ssm_state_size", "write model.mamba_state_dim"},
    {"d_state", "write model.mamba_state_dim"},
    {"d_conv", "write model.mamba_conv_width"},
    {"conv_kernel", "write model.mamba_conv_width"},
    // The step and its data.
    {"block_size", kLength},
    {"max_seq_len", kLength},
    {"seq_len", kLength},
    {"max_position_embeddings", kLength},
    {"sequence_length", kLength},
    {"batch_size", kBatch},
    {"local_batch_size", kMicro},
    {"per_device_train_batch_size", kMicro},
    {"gradient_accumulation_steps", kAccumulation},
    {"num_microbatches", kAccumulation},
    {"train_batch_size", kGlobal},
    {"torch_dtype", kDtype},
    {"bf16", "write train.dtype = \"bf16\""},
    {"fp16", "write train.dtype: fp32, bf16 or fp64; there is no fp16"},
    {"data_path", "write data.path"},
    {"dataset", "write data.path"},
    {"dataset_path", "write data.path"},
    {"blend", kMix},
    {"data_blend", kMix},
    {"data_mixture", kMix},
    {"datasets", kMix},
    // Learning rate and optimizer.
    {"learning_rate", kRate},
    {"max_lr", kRate},
    {"min_learning_rate", kLeastRate},
    {"warmup_iters", kWarmup},
    {"lr_warmup_iters", kWarmup},
    {"lr_decay_iters", kDecay},
    {"lr_decay_style", "write optim.schedule"},
    {"lr_scheduler_type", "write optim.schedule"},
    {"beta1", "write optim.adam_beta1"},
    {"beta2", "write optim.adam_beta2"},
    {"adam_epsilon", "write optim.adam_eps"},
    {"eps", "write optim.adam_eps or model.norm_epsilon"},
    {"grad_clip", kClip},
    {"max_norm", kClip},
    {"max_grad_norm", kClip},
    {"optimizer", kOptimizer},
    // The run.
    {"max_steps", kSteps},
    {"max_iters", kSteps},
    {"train_iters", kSteps},
    {"num_train_epochs", "there are no epochs here: write run.steps"},
    {"epochs", "there are no epochs here: write run.steps"},
    {"eval_interval", kEvaluate},
    {"eval_iters", "write eval.steps"},
    {"save_interval", kSave},
    {"save_steps", kSave},
    {"out_dir", kFolder},
    {"output_dir", kFolder},
    {"device", kDevice},
    {"compile", "nothing is compiled at run time; graphs are graphs.mode"},
    {"enable_cuda_graph", kGraphs},
    // Ranks and memory.
    {"tensor_model_parallel_size", kTensor},
    {"tensor_parallel_degree", kTensor},
    {"pipeline_model_parallel_size", kPipeline},
    {"pipeline_parallel_degree", kPipeline},
    {"context_parallel_size", kContext},
    {"context_parallel_degree", kContext},
    {"expert_model_parallel_size", kExpertRanks},
    {"expert_parallel_degree", kExpertRanks},
    {"use_distributed_optimizer", kZero},
    {"zero_stage", kZero},
    {"sequence_parallel", "rows between layers are shared out wherever parallel.tensor is above 1"},
    {"activation_checkpointing", kRecompute},
    {"gradient_checkpointing", kRecompute},
    {"recompute_granularity", kRecompute},
    {"include", "include stands at the top of a deck file, before its sections"},
});

}  // namespace

std::string_view foreign_key(std::string_view key) {
  std::string name(key.substr(key.rfind('.') + 1));
  for (char& c : name)
    c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const auto* const row = std::ranges::find(kForeign, name, &Foreign::name);
  return row == kForeign.end() ? std::string_view{} : row->instead;
}

std::vector<std::string_view> foreign_keys() {
  std::vector<std::string_view> names;
  for (const Foreign& row : kForeign) names.push_back(row.name);
  return names;
}

std::string instead_of(std::string_view key) {
  if (const std::string_view foreign = foreign_key(key); !foreign.empty())
    return std::string(foreign);
  if (const std::string_view near = nearest_key(key); !near.empty())
    return fmt::format("nearest: '{}'", near);
  return "--help lists all keys";
}

}  // namespace stowage::inputs
