// The kind of layer attention: its keys, its row.
#include "inputs/data/run_section.hpp"
#include "inputs/deck/check.hpp"
#include "layers/mixers/kinds.hpp"
#include "layers/recording/config_section.hpp"

namespace stowage::inputs {

using layers::ModelConfig;
using Attention = ModelConfig::Attention;
using kernels::RopeFrequencies;

template <>
std::vector<Row<Attention>> rows<Attention>() {
  std::vector<Row<Attention>> all = {
      row(&Attention::heads, {.key = "model.num_attention_heads",
                              .range = between(1, kMostCount),
                              .numerics = true,
                              .help = "Query heads H of an attention layer."}),
      row(&Attention::kv_heads,
          {.key = "model.num_query_groups",
           .range = between(0, kMostCount),
           .numerics = true,
           .help = "Key-value heads K; divides the query heads. 0: as many as query heads.",
           .derived = [](const Deck& deck) { return read(deck, &Attention::heads); }}),
      row(&Attention::head_dim,
          {.key = "model.head_dim",
           .range = between(0, kMostWidth),
           .numerics = true,
           .help = "Width P of an attention head (Megatron's kv_channels). 0: hidden_size / heads.",
           .derived =
               [](const Deck& deck) {
                 return read(deck, &ModelConfig::width) / read(deck, &Attention::heads);
               }}),
      row(&Attention::rope,
          {.key = "model.position_embedding",
           .numerics = true,
           .help = "Positions of attention: none, or rotary embedding."},
          {{"none", false}, {"rope", true}}),
  };
  append(all, &Attention::frequencies);
  all.push_back(row(
      &Attention::norms,
      {.key = "model.qk_layernorm",
       .numerics = true,
       .help =
           "RMSNorm of each query and key head, with a weight of its width for each, before the "
           "positions."}));
  all.push_back(row(&Attention::output_gate,
                    {.key = "model.attention_output_gate",
                     .numerics = true,
                     .help = "The sigmoid of one more projection of the input, as wide as the "
                             "queries, scales attention's output before its own projection."}));
  all.push_back(row(&Attention::rotary_percent,
                    {.key = "model.rotary_percent",
                     .range = {.low = 0, .high = 1, .open_low = true},
                     .numerics = true,
                     .help = "Part of each query and key head that positions turn: its "
                             "first columns, an even number of them."}));
  return all;
}

template <>
std::vector<Row<RopeFrequencies>> rows<RopeFrequencies>() {
  return {
      row(&RopeFrequencies::theta, {.key = "model.rope_theta",
                                    .range = above(0),
                                    .numerics = true,
                                    .help = "Base of the rotary frequencies."}),
      row(&RopeFrequencies::factor,
          {.key = "model.rope_scaling_factor",
           .range = at_least(1),
           .numerics = true,
           .help = "How much slower long rotary waves turn, as in Llama 3.1 (rope_type llama3). 1: "
                   "none."}),
      row(&RopeFrequencies::low,
          {.key = "model.rope_scaling_low_freq_factor",
           .range = above(0),
           .numerics = true,
           .help = "Waves of which model.rope_scaling_positions hold fewer than this are slowed in "
                   "full."}),
      row(&RopeFrequencies::high, {.key = "model.rope_scaling_high_freq_factor",
                                   .range = above(0),
                                   .numerics = true,
                                   .help = "Waves of which they hold more than this stay; above "
                                           "model.rope_scaling_low_freq_factor."}),
      row(&RopeFrequencies::positions, {.key = "model.rope_scaling_positions",
                                        .unit = "tokens",
                                        .range = above(0),
                                        .numerics = true,
                                        .help = "Positions that the model was first trained on "
                                                "(original_max_position_embeddings)."}),
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
  using Attention = ModelConfig::Attention;
  const Attention& attention = model.attention;
  using kernels::RopeFrequencies;
  constexpr double kMostInner = 1 << 24;  // columns: layers hold them as an int
  const std::string_view heads = key(&Attention::heads), width = key(&Attention::head_dim);
  check_divides(deck, key(&Attention::kv_heads), heads);
  if (deck.where(width) == "derived") check_divides(deck, heads, key(&ModelConfig::width));
  if (attention.rope && attention.head_dim % 2 != 0)
    throw_usage("{} must be even for {}", deck.cite(width), cite(deck, &Attention::rope));
  const std::string_view part = key(&Attention::rotary_percent);
  if (attention.rope && (attention.rotary_dim() < 2 || attention.rotary_dim() % 2 != 0))
    throw_usage("{} of {} turns {} columns; it must be an even number, 2 at least", deck.cite(part),
                deck.cite(width), attention.rotary_dim());
  if (!(attention.frequencies.low < attention.frequencies.high))
    throw_usage("{} must be below {}", cite(deck, &RopeFrequencies::low),
                cite(deck, &RopeFrequencies::high));
  check_product(deck, "columns of queries", {heads, width}, kMostInner);
  check_product(deck, "elements of queries",
                {key(&TrainConfig::micro_batch_size), key(&TrainConfig::seq_length), heads, width});
}

StepFlops flops(const ModelConfig& model, const StepWork& work) {
  const double width = static_cast<double>(model.width);
  const double heads = model.attention.heads, kv_heads = model.attention.kv_heads;
  const double head_dim = model.attention.head_dim;
  const double gate = model.attention.output_gate ? heads : 0;
  const double products = 2 * work.tokens * width * head_dim * (2 * heads + gate + 2 * kv_heads);
  // Megatron counts the square of each length: the causal half cancels the two of multiply-add.
  const double squares = 2 * work.pairs - work.tokens;
  return {products + 4 * heads * work.pairs * head_dim, products + 2 * squares * heads * head_dim};
}

void slim(ModelConfig& model) {
  ModelConfig::Attention& attention = model.attention;
  if (attention.kv_heads <= 2) return;
  attention.heads = 2 * (attention.heads / attention.kv_heads);
  attention.kv_heads = 2;
}

constexpr inputs::Module kModules[] = {
    {"core_attn", "q, k, v (n, (H+2K)P), LSE (n, H); output gate (n, H*P) if any", "normed input"},
    {"attn_proj", "attention output (n, H*P)", "q, k, v"}};

}  // namespace

constinit const Kind kinds::attention = {{.letter = '*',
                                          .name = "attention",
                                          .scope = "attn",
                                          .norm_module = "attn_norm",
                                          .input_module = "qkv_linear",
                                          .modules = kModules},
                                         {.flops = flops,
                                          .rows = append_rows<&ModelConfig::attention>,
                                          .check = check_sizes,
                                          .slim = slim}};

}  // namespace stowage::layers
