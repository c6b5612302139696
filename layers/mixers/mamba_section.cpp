// Rows of [model] about Mamba-2.
#include "inputs/data/run_section.hpp"
#include "inputs/deck/check.hpp"
#include "layers/recording/config_section.hpp"

namespace stowage::inputs {

using layers::ModelConfig;
using Mamba = ModelConfig::Mamba;

template <>
std::vector<Row<Mamba>> rows<Mamba>() {
  return {
      row(&Mamba::heads,
          {.key = "model.mamba_num_heads",
           .range = between(0, 2 * kMostWidth),
           .numerics = true,
           .help =
               "Heads of a Mamba-2 layer; heads * mamba_head_dim is its inner width d_inner. 0: "
               "d_inner is 2 * hidden_size.",
           .derived =
               [](const Deck& deck) {
                 return 2 * read(deck, &ModelConfig::width) / read(deck, &Mamba::head_dim);
               }}),
      row(&Mamba::head_dim, {.key = "model.mamba_head_dim",
                             .range = between(1, kMostWidth),
                             .numerics = true,
                             .help = "Width P of a Mamba-2 head."}),
      row(&Mamba::groups, {.key = "model.mamba_num_groups",
                           .range = between(1, kMostCount),
                           .numerics = true,
                           .help = "Groups G that share B and C; divides the Mamba heads."}),
      row(&Mamba::state, {.key = "model.mamba_state_dim",
                          .range = between(1, kMostWidth),
                          .numerics = true,
                          .help = "State size N of a Mamba-2 head."}),
      row(&Mamba::chunk,
          {.key = "model.mamba_chunk_size",
           .unit = "tokens",
           .range = between(1, 4096),
           .numerics = true,
           .help = "Chunk Q of the scan; changes the order of sums, not the function."}),
      row(&Mamba::conv_width, {.key = "model.mamba_conv_width",
                               .unit = "tokens",
                               .range = between(2, 4),
                               .numerics = true,
                               .help = "Width of the causal depthwise convolution."}),
      row(&Mamba::form,
          {.key = "model.mamba_mixer",
           .numerics = true,
           .help =
               "Convolution and scan of a Mamba-2 layer: separate operators; one in forward, the "
               "convolution's output is saved as before (mamba_ssm); or one in both directions "
               "that makes it again in backward: then mamba_conv saves nothing, and mamba_ssm the "
               "outputs of in_proj and of the scan."},
          {{"separate", Mamba::Form::separate},
           {"fused_forward", Mamba::Form::fused_forward},
           {"fused", Mamba::Form::fused}}),
      row(&Mamba::dt_min, {.key = "model.mamba_dt_min",
                           .range = at_least(0),
                           .numerics = true,
                           .help = "Lower clamp of the step size after softplus."}),
      row(&Mamba::dt_max, {.key = "model.mamba_dt_max",
                           .range = above_or_infinite(0),
                           .numerics = true,
                           .help = "Upper clamp of the step size after softplus."}),
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

void check(const ModelConfig::Mamba& mamba, const Deck& deck) {
  using Mamba = ModelConfig::Mamba;
  constexpr double kMostInner = 1 << 24;  // columns: layers hold them as an int
  const std::string_view batch = key(&TrainConfig::micro_batch_size);
  const std::string_view length = key(&TrainConfig::seq_length);
  const std::string_view heads = key(&Mamba::heads), width = key(&Mamba::head_dim);
  const std::string_view state = key(&Mamba::state);
  const std::int64_t inner = 2 * read(deck, &ModelConfig::width);
  if (deck.where(heads) == "derived" && inner % mamba.head_dim != 0)
    throw_usage("{} must divide 2 * {}, the inner width of a Mamba layer by default",
                deck.cite(width), cite(deck, &ModelConfig::width));
  check_divides(deck, key(&Mamba::groups), heads);
  if (!(mamba.dt_min < mamba.dt_max))
    throw_usage("{} must be below {}", cite(deck, &Mamba::dt_min), cite(deck, &Mamba::dt_max));
  check_product(deck, "inner columns", {heads, width}, kMostInner);
  check_product(deck, "columns of B", {key(&Mamba::groups), state}, kMostInner);
  check_product(deck, "elements of inner activations", {batch, length, heads, width});
  check_product(deck, "elements of the states", {batch, heads, width, state});
}

}  // namespace stowage::layers
