#include "drivers/common/options.hpp"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <string>
#include <vector>

#include "drivers/common/machine_links.hpp"
#include "drivers/common/op_efficiency.hpp"
#include "execution/error.hpp"
#include "kernels/conv1d/conv1d.hpp"

namespace stowage::drivers {
namespace {

using inputs::Deck;

std::int64_t integer(const Deck& deck, const char* key) { return deck.get<std::int64_t>(key); }
int small(const Deck& deck, const char* key) { return static_cast<int>(integer(deck, key)); }
double real(const Deck& deck, const char* key) { return deck.get<double>(key); }
bool flag(const Deck& deck, const char* key) { return deck.get<bool>(key); }
const std::string& text(const Deck& deck, const char* key) { return deck.get<std::string>(key); }

/// The names of a list with the modules that each stands for.
std::vector<offload::ModuleName> module_names(const Deck& deck, const char* key) {
  std::vector<offload::ModuleName> names;
  for (const std::string& word : deck.get<std::vector<std::string>>(key))
    if (word == "group_mlp")
      names.push_back({word, {"expert_fc1", "moe_act"}});
    else
      names.push_back({word, {word}});
  return names;
}

layers::ModelConfig::Attention::Exchange attention_exchange(const std::string& word) {
  using Exchange = layers::ModelConfig::Attention::Exchange;
  if (word == "all_gather") return Exchange::keys;
  return word == "all_to_all" ? Exchange::heads : Exchange::automatic;
}

layers::ModelConfig::Moe::Exchange expert_exchange(const std::string& word) {
  using Exchange = layers::ModelConfig::Moe::Exchange;
  if (word == "all_gather") return Exchange::gather;
  return word == "all_to_all" ? Exchange::slots : Exchange::automatic;
}

kernels::ForcedLoad forced_load(const std::string& word) {
  using kernels::ForcedLoad;
  if (word == "balanced") return ForcedLoad::balanced;
  return word == "zipf" ? ForcedLoad::zipf : ForcedLoad::none;
}

layers::ModelConfig::Mamba::Form mamba_form(const std::string& word) {
  using Form = layers::ModelConfig::Mamba::Form;
  if (word == "fused") return Form::fused;
  return word == "fused_forward" ? Form::fused_forward : Form::separate;
}

layers::PipelineSchedule pipeline_schedule(const std::string& word) {
  using layers::PipelineSchedule;
  if (word == "zero_bubble") return PipelineSchedule::zero_bubble;
  if (word == "interleaved") return PipelineSchedule::interleaved;
  return word == "auto" ? PipelineSchedule::automatic : PipelineSchedule::one_forward_one_backward;
}

}  // namespace

layers::ModelConfig model_config(const Deck& deck) {
  layers::ModelConfig model;
  model.pattern = text(deck, "model.pattern");
  model.virtual_stages = small(deck, "parallel.virtual_stages");
  model.width = integer(deck, "model.hidden_size");
  model.vocabulary = integer(deck, "model.vocab_size");
  model.norm_epsilon = real(deck, "model.norm_epsilon");
  model.init_std = real(deck, "model.init_std");
  model.tied_embeddings = !flag(deck, "model.untie_embeddings");
  model.attention = {.heads = small(deck, "model.num_attention_heads"),
                     .kv_heads = small(deck, "model.num_query_groups"),
                     .head_dim = small(deck, "model.head_dim"),
                     .rope = text(deck, "model.position_embedding") == "rope",
                     .frequencies = {.theta = real(deck, "model.rope_theta"),
                                     .factor = real(deck, "model.rope_scaling_factor"),
                                     .low = real(deck, "model.rope_scaling_low_freq_factor"),
                                     .high = real(deck, "model.rope_scaling_high_freq_factor"),
                                     .positions = real(deck, "model.rope_scaling_positions")},
                     .norms = flag(deck, "model.qk_layernorm"),
                     .exchange = attention_exchange(text(deck, "parallel.context_attention")),
                     .zigzag = text(deck, "parallel.context_tokens") == "zigzag"};
  model.mamba = {.heads = small(deck, "model.mamba_num_heads"),
                 .head_dim = small(deck, "model.mamba_head_dim"),
                 .groups = small(deck, "model.mamba_num_groups"),
                 .state = small(deck, "model.mamba_state_dim"),
                 .chunk = small(deck, "model.mamba_chunk_size"),
                 .conv_width = small(deck, "model.mamba_conv_width"),
                 .form = mamba_form(text(deck, "model.mamba_mixer")),
                 .dt_min = real(deck, "model.mamba_dt_min"),
                 .dt_max = real(deck, "model.mamba_dt_max")};
  model.mlp = {.ffn = integer(deck, "model.ffn_hidden_size"),
               .activation = text(deck, "model.activation") == "swiglu"
                                 ? kernels::Activation::swiglu
                                 : kernels::Activation::squared_relu};
  model.moe = {.experts = small(deck, "model.num_moe_experts"),
               .topk = small(deck, "model.moe_router_topk"),
               .ffn = integer(deck, "model.moe_ffn_hidden_size"),
               .shared_ffn = integer(deck, "model.moe_shared_expert_hidden_size"),
               .sigmoid = text(deck, "model.moe_score_function") == "sigmoid",
               .normalise = flag(deck, "model.moe_norm_topk_prob"),
               .groups = small(deck, "model.moe_num_groups"),
               .group_topk = small(deck, "model.moe_group_topk"),
               .scaling = real(deck, "model.moe_router_topk_scaling_factor"),
               .aux_coeff = real(deck, "model.moe_aux_loss_coeff"),
               .z_coeff = real(deck, "model.moe_z_loss_coeff"),
               .bias_rate = real(deck, "model.moe_expert_bias_update_rate"),
               .forced_load = forced_load(text(deck, "model.moe_router_force_load")),
               .exchange = expert_exchange(text(deck, "parallel.expert_exchange"))};
  return model;
}

layers::OptimizerConfig optimizer_config(const Deck& deck) {
  return {.beta1 = real(deck, "optim.adam_beta1"),
          .beta2 = real(deck, "optim.adam_beta2"),
          .epsilon = real(deck, "optim.adam_eps"),
          .clip = real(deck, "optim.clip_grad")};
}

kernels::SpikeRule spike_rule(const Deck& deck) {
  return {.factor = real(deck, "optim.spike_factor"),
          .window = integer(deck, "optim.spike_window"),
          .most_in_a_row = integer(deck, "optim.spikes_in_a_row")};
}

layers::LearningRate learning_rate(const Deck& deck) {
  using Shape = layers::LearningRate::Shape;
  const std::string& word = text(deck, "optim.schedule");
  return {.shape = word == "cosine" ? Shape::cosine
                   : word == "wsd"  ? Shape::wsd
                                    : Shape::constant,
          .lr = real(deck, "optim.lr"),
          .min_lr = real(deck, "optim.min_lr"),
          .warmup_steps = integer(deck, "optim.warmup_steps"),
          .decay_steps = integer(deck, "optim.decay_steps"),
          .wsd_decay_steps = integer(deck, "optim.wsd_decay_steps")};
}

execution::Dtype storage_dtype(const Deck& deck) {
  const std::string& word = text(deck, "train.dtype");
  if (word == "fp64") return execution::Dtype::fp64;
  return word == "bf16" ? execution::Dtype::bf16 : execution::Dtype::fp32;
}

offload::GraphOptions graph_options(const Deck& deck) {
  using Mode = offload::GraphOptions::Mode;
  const std::string& word = text(deck, "graphs.mode");
  offload::GraphOptions graphs;
  graphs.mode = word == "step" ? Mode::step : word == "scopes" ? Mode::scopes : Mode::off;
  graphs.scopes = deck.get<std::vector<std::string>>("graphs.scopes");
  graphs.copies = text(deck, "graphs.copies") == "inside" ? offload::GraphOptions::Copies::inside
                                                          : offload::GraphOptions::Copies::beside;
  graphs.delay_until_graph = flag(deck, "offload.delay_until_graph");
  return graphs;
}

offload::Policy offload_policy(const Deck& deck, int stage) {
  offload::Policy policy;
  const std::string& word = text(deck, "offload.policy");
  policy.kind = word == "manual" ? offload::Policy::Kind::manual
                : word == "auto" ? offload::Policy::Kind::automatic
                                 : offload::Policy::Kind::none;
  policy.offload = module_names(deck, "offload.modules");
  policy.recompute = module_names(deck, "recompute.modules");
  policy.fraction = real(deck, "offload.fraction");
  policy.min_tensor_bytes = static_cast<std::size_t>(integer(deck, "offload.min_tensor_bytes"));
  policy.keep_bytes = stage * integer(deck, "offload.delta_bytes_across_pp_ranks");
  policy.caps = {.max_inflight = small(deck, "offload.max_inflight"),
                 .d2h_bytes = integer(deck, "offload.max_inflight_bytes_d2h"),
                 .h2d_bytes = integer(deck, "offload.max_inflight_bytes_h2d")};
  policy.keep_unhidden = flag(deck, "offload.keep_unhidden");
  policy.device_budget_bytes = integer(deck, "offload.device_budget_bytes");
  policy.berths = flag(deck, "offload.berths");
  policy.host_budget_bytes = integer(deck, "offload.host_budget_bytes");
  return policy;
}

offload::Rates machine_rates(const Deck& deck, const parallel::GridShape& shape) {
  offload::Rates rates;
  const auto set = [&](double& rate, const char* key) {
    if (const double given = real(deck, key); given > 0) rate = given;
  };
  set(rates.flops_per_s, "machine.matmul_flops_per_s");
  set(rates.device_bytes_per_s, "machine.device_copy_bytes_per_s");
  set(rates.d2h_bytes_per_s, "machine.d2h_bytes_per_s");
  set(rates.h2d_bytes_per_s, "machine.h2d_bytes_per_s");
  set(rates.duplex_bytes_per_s, "machine.duplex_bytes_per_s");
  set(rates.link.bytes_per_s, "machine.allreduce_bytes_per_s");
  rates.links = machine_links(deck, shape, rates.link);
  rates.links_beside = machine_links_beside(deck, shape);
  rates.efficiency = op_efficiency(deck);
  if (!text(deck, "machine.name").empty())
    rates.copy_latency_s = real(deck, "machine.copy_latency_s");
  set(rates.d2h_slowdown.arithmetic, "machine.d2h_slowdown_arithmetic");
  set(rates.d2h_slowdown.memory, "machine.d2h_slowdown_memory");
  set(rates.h2d_slowdown.arithmetic, "machine.h2d_slowdown_arithmetic");
  set(rates.h2d_slowdown.memory, "machine.h2d_slowdown_memory");
  return rates;
}

training::TrainerOptions trainer_options(const Deck& deck, std::int64_t microbatches,
                                         const parallel::Ranks& ranks, parallel::RankOrder order) {
  training::TrainerOptions options;
  options.model = model_config(deck);
  options.precision.storage = storage_dtype(deck);
  options.step.sequence = integer(deck, "train.seq_length");
  options.step.tokens = options.step.sequence * integer(deck, "train.micro_batch_size");
  options.step.microbatches = static_cast<int>(microbatches);
  options.optimizer = optimizer_config(deck);
  options.optimizer.spikes = spike_rule(deck);
  options.optimizer.attempts =
      flag(deck, "validate.bad_steps_again") || options.optimizer.spikes.factor > 0;
  options.optimizer.own_loss = flag(deck, "validate.bad_steps_again");
  options.optimizer.own_norm = options.optimizer.own_loss && flag(deck, "validate.own_norms");
  options.state.bucket_elements = integer(deck, "parallel.bucket_elements");
  options.sharing.ranks = ranks;
  options.sharing.schedule = pipeline_schedule(text(deck, "parallel.schedule"));
  options.sharing.overlap_microbatches = flag(deck, "parallel.overlap_microbatches");
  options.sharing.zero_bubble_bytes =
      static_cast<double>(integer(deck, "parallel.zero_bubble_bytes"));
  options.sharing.zero = integer(deck, "parallel.zero") == 1;
  options.sharing.bf16_gradients = text(deck, "parallel.gradient_dtype") == "bf16";
  options.seed = static_cast<std::uint64_t>(integer(deck, "run.seed"));
  options.planner.policy = offload_policy(deck, ranks.coordinates[parallel::Axis::pipeline]);
  options.planner.rates = machine_rates(deck, ranks.shape);
  options.planner.chains = {order == parallel::RankOrder::chain,
                            std::string(parallel::name(parallel::kApart))};
  options.executor.ring_slots = small(deck, "execution.ring_slots");
  options.executor.audit = flag(deck, "execution.audit");
  options.executor.warmup_steps = small(deck, "graphs.warmup_steps");
  options.planner.graphs = graph_options(deck);
  options.expert_capacity = deck.get<std::vector<double>>("parallel.expert_capacity");
  std::ranges::sort(options.expert_capacity);
  const auto& graphed = deck.get<std::vector<std::int64_t>>("graphs.max_packed_seqs");
  if (!graphed.empty()) options.largest_graphed = *std::max_element(graphed.begin(), graphed.end());
  if (options.executor.audit) options.planner.alignment = 4096;
  return options;
}

parallel::GridShape grid_shape(const Deck& deck, int ranks) {
  return parallel::fit_grid(ranks, small(deck, "parallel.tensor"), small(deck, "parallel.context"),
                            small(deck, "parallel.expert"), small(deck, "parallel.pipeline"));
}

parallel::SequencePart sequence_part(const Deck& deck, const parallel::Communicator& world) {
  return parallel::sequence_part(grid_shape(deck, world.size()), world.rank());
}

parallel::NcclOptions nccl_options(const Deck& deck) {
  return {.algorithm = text(deck, "parallel.nccl_algorithm"),
          .protocol = text(deck, "parallel.nccl_protocol"),
          .channels = small(deck, "parallel.nccl_channels"),
          .copies = text(deck, "parallel.transport") == "auto",
          .patience_s = real(deck, "parallel.collective_patience_s")};
}

void refuse_unsupported(const Deck& deck) {
  const auto refuse = [&](const char* key, const char* allowed) {
    execution::throw_usage("{}: not supported yet; allowed: {}", deck.cite(key), allowed);
  };
  if (integer(deck, "model.mamba_conv_width") != kernels::kConv1dWidth)
    refuse("model.mamba_conv_width", "4");
}

}  // namespace stowage::drivers
