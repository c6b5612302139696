// Rows of [model] about attention.
#include "inputs/data/run_section.hpp"
#include "inputs/deck/check.hpp"
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

void check(const ModelConfig::Attention& attention, const Deck& deck) {
  using Attention = ModelConfig::Attention;
  using kernels::RopeFrequencies;
  constexpr double kMostInner = 1 << 24;  // columns: layers hold them as an int
  const std::string_view heads = key(&Attention::heads), width = key(&Attention::head_dim);
  check_divides(deck, key(&Attention::kv_heads), heads);
  if (deck.where(width) == "derived") check_divides(deck, heads, key(&ModelConfig::width));
  if (attention.rope && attention.head_dim % 2 != 0)
    throw_usage("{} must be even for {}", deck.cite(width), cite(deck, &Attention::rope));
  if (!(attention.frequencies.low < attention.frequencies.high))
    throw_usage("{} must be below {}", cite(deck, &RopeFrequencies::low),
                cite(deck, &RopeFrequencies::high));
  check_product(deck, "columns of queries", {heads, width}, kMostInner);
  check_product(deck, "elements of queries",
                {key(&TrainConfig::micro_batch_size), key(&TrainConfig::seq_length), heads, width});
}

}  // namespace stowage::layers
