// The kind of layer Mamba-2: its keys, its row.
#include "inputs/data/run_section.hpp"
#include "inputs/deck/check.hpp"
#include "layers/mixers/kinds.hpp"
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

namespace {

void check_sizes(const ModelConfig& model, const Deck& deck) {
  using Mamba = ModelConfig::Mamba;
  const Mamba& mamba = model.mamba;
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

StepFlops flops(const ModelConfig& model, const StepWork& work) {
  constexpr double kChunk = 128;
  const double width = static_cast<double>(model.width);
  const double heads = model.mamba.heads, head_dim = model.mamba.head_dim;
  const double state = model.mamba.state, groups = model.mamba.groups;
  const auto projections = [&](double inner) {
    return 2 * width * (2 * inner + 2 * groups * state + heads) + 2 * inner * width;
  };
  const double inner = heads * head_dim;
  const double scan =
      heads * (kChunk * head_dim + 4 * state * head_dim) + 2 * groups * kChunk * state;
  const double conv = 2 * model.mamba.conv_width * (inner + 2 * groups * state);
  return {work.tokens * (projections(inner) + scan + conv),
          work.tokens * (projections(2 * width) + 7 * 2 * width * state)};
}

void slim(ModelConfig& model) {
  ModelConfig::Mamba& mamba = model.mamba;
  if (mamba.groups > 2) {
    mamba.heads = 2 * (mamba.heads / mamba.groups);
    mamba.groups = 2;
  }
  const ModelConfig::Mamba anywhere;  // at a limit of time steps the slope jumps
  mamba.dt_min = anywhere.dt_min;
  mamba.dt_max = anywhere.dt_max;
}

constexpr inputs::Module kModules[] = {
    {"mamba_conv", "in_proj output z, xBC, dt", "normed input"},
    {"mamba_ssm", "conv output xBC, scan output y", "in_proj output"},
    {"mamba_out_proj", "gated-norm output", "y, z"}};

}  // namespace

constinit const Kind kinds::mamba = {
    {.letter = 'M',
     .name = "Mamba-2",
     .scope = "mamba",
     .recurrent = true,
     .norm_module = "mamba_norm",
     .input_module = "mamba_in_proj",
     .modules = kModules},
    {.flops = flops, .rows = append_rows<&ModelConfig::mamba>, .check = check_sizes, .slim = slim}};

}  // namespace stowage::layers
