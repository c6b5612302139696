// The kind of layer gated DeltaNet: its keys, its row.
#include "inputs/data/run_section.hpp"
#include "inputs/deck/check.hpp"
#include "layers/mixers/kinds.hpp"
#include "layers/recording/config_section.hpp"

namespace stowage::inputs {

using layers::ModelConfig;
using Delta = ModelConfig::GatedDelta;

template <>
std::vector<Row<Delta>> rows<Delta>() {
  return {
      row(&Delta::key_heads,
          {.key = "model.delta_num_key_heads",
           .range = between(0, kMostCount),
           .numerics = true,
           .help = "Heads of q and of k of a gated DeltaNet layer. 0: as many as make the columns "
                   "of q hidden_size.",
           .derived =
               [](const Deck& deck) {
                 return read(deck, &ModelConfig::width) / read(deck, &Delta::key_head_dim);
               }}),
      row(&Delta::value_heads,
          {.key = "model.delta_num_value_heads",
           .range = between(0, 2 * kMostCount),
           .numerics = true,
           .help = "Heads of v, with a state each; a multiple of the key heads. 0: twice as many.",
           .derived = [](const Deck& deck) { return 2 * read(deck, &Delta::key_heads); }}),
      row(&Delta::key_head_dim, {.key = "model.delta_key_head_dim",
                                 .range = between(1, kMostWidth),
                                 .numerics = true,
                                 .help = "Width N of a head of q or k."}),
      row(&Delta::value_head_dim, {.key = "model.delta_value_head_dim",
                                   .range = between(1, kMostWidth),
                                   .numerics = true,
                                   .help = "Width P of a head of v."}),
      row(&Delta::conv_width, {.key = "model.delta_conv_width",
                               .unit = "tokens",
                               .range = between(2, 4),
                               .numerics = true,
                               .help = "Width of the causal depthwise convolution of q, k and v."}),
      row(&Delta::channel_decay,
          {.key = "model.delta_decay",
           .numerics = true,
           .help = "What a decay is of: a head (gated DeltaNet), or each column of a head of k "
                   "(Kimi delta attention)."},
          {{"head", false}, {"channel", true}}),
      row(&Delta::decay_rank,
          {.key = "model.delta_decay_rank",
           .range = between(0, kMostWidth),
           .numerics = true,
           .help = "With delta_decay = \"channel\": rank of the projection that gives the decays. "
                   "0: delta_key_head_dim.",
           .derived = [](const Deck& deck) { return read(deck, &Delta::key_head_dim); }}),
  };
}

}  // namespace stowage::inputs

namespace stowage::layers {

using inputs::check_product;
using inputs::Deck;
using inputs::key;
using inputs::TrainConfig;

namespace {

void check_sizes(const ModelConfig& model, const Deck& deck) {
  using Delta = ModelConfig::GatedDelta;
  constexpr double kMostInner = 1 << 24;  // columns: layers hold them as an int
  const std::string_view key_heads = key(&Delta::key_heads), heads = key(&Delta::value_heads);
  const std::string_view key_dim = key(&Delta::key_head_dim), dim = key(&Delta::value_head_dim);
  const std::string_view batch = key(&TrainConfig::micro_batch_size);
  const std::string_view length = key(&TrainConfig::seq_length);
  if (model.delta.key_heads == 0)
    execution::throw_usage("{} is wider than {}: a layer would have no head of q",
                           deck.cite(key_dim), inputs::cite(deck, &ModelConfig::width));
  check_divides(deck, key_heads, heads);
  check_product(deck, "columns of q", {key_heads, key_dim}, kMostInner);
  check_product(deck, "columns of v", {heads, dim}, kMostInner);
  check_product(deck, "elements of v", {batch, length, heads, dim});
  check_product(deck, "elements of the states", {heads, dim, key_dim});
  if (model.delta.channel_decay)
    check_product(deck, "elements of decays", {batch, length, heads, key_dim});
}

StepFlops flops(const ModelConfig& model, const StepWork& work) {
  constexpr double kChunk = 64;
  const ModelConfig::GatedDelta& delta = model.delta;
  const double width = static_cast<double>(model.width), heads = delta.value_heads;
  const double key = delta.key_head_dim, value = delta.value_head_dim;  // widths of a head
  const double values = static_cast<double>(delta.values());
  const double projections =
      2 * width * static_cast<double>(delta.projection()) + 2 * values * width;
  const double conv = 2.0 * delta.conv_width * static_cast<double>(delta.conv_channels());
  const double rule = heads * (6 * key * value + 2 * kChunk * (key + value));
  const double decays = delta.channel_decay
                            ? 2.0 * delta.decay_rank * (width + static_cast<double>(delta.decays()))
                            : 0;
  return {work.tokens * (projections + decays + conv + rule),
          work.tokens * (projections + decays + conv + heads * 8 * value * value)};
}

void slim(ModelConfig& model) {
  ModelConfig::GatedDelta& delta = model.delta;
  if (delta.key_heads > 2) {
    delta.value_heads = 2 * (delta.value_heads / delta.key_heads);
    delta.key_heads = 2;
  }
}

constexpr inputs::Module kModules[] = {
    {"delta_conv", "outputs of in_proj (z, qkv, b, a) and decay_down", "normed input"},
    {"delta_rule", "outputs of conv (qkv), decay_up and rule (y)",
     "outputs of in_proj and decay_down"},
    {"delta_out_proj", "gated-norm output", "y, z"}};

}  // namespace

constinit const Kind kinds::gated_delta = {
    {.letter = 'G',
     .name = "gated DeltaNet",
     .scope = "delta",
     .recurrent = true,
     .norm_module = "delta_norm",
     .input_module = "delta_in_proj",
     .modules = kModules},
    {.flops = flops, .rows = append_rows<&ModelConfig::delta>, .check = check_sizes, .slim = slim}};

}  // namespace stowage::layers
