// The kind of layer dense MLP: its keys, its row.
#include <algorithm>

#include "inputs/deck/check.hpp"
#include "layers/mixers/feed_forward.hpp"
#include "layers/mixers/kinds.hpp"
#include "layers/recording/config_section.hpp"

namespace stowage::inputs {

using layers::ModelConfig;
using Mlp = ModelConfig::Mlp;

template <>
std::vector<Row<Mlp>> rows<Mlp>() {
  return {
      row(&Mlp::ffn,
          {.key = "model.ffn_hidden_size",
           .range = between(0, 16 * kMostWidth),
           .numerics = true,
           .help = "Width F of a dense MLP. 0: 4 * hidden_size.",
           .derived = [](const Deck& deck) { return 4 * read(deck, &ModelConfig::width); }}),
      row(&Mlp::activation,
          {.key = "model.activation",
           .numerics = true,
           .help = "Activation of dense MLP, experts and shared expert."},
          {{"squared_relu", kernels::Activation::squared_relu},
           {"swiglu", kernels::Activation::swiglu}}),
  };
}

}  // namespace stowage::inputs

namespace stowage::layers {

using inputs::Deck;
using inputs::key;

namespace {

void check_sizes(const ModelConfig&, const Deck& deck) {
  check_product(deck, "elements of a weight",
                {key(&ModelConfig::width), key(&ModelConfig::Mlp::ffn)});
}

StepFlops flops(const ModelConfig& model, const StepWork& work) {
  const double products = work.tokens * mlp_row_flops(model, model.width, model.mlp.ffn);
  return {products, products};
}

void slim(ModelConfig& model) { model.mlp.ffn = std::min<std::int64_t>(model.mlp.ffn, 128); }

constexpr inputs::Module kModules[] = {
    {"mlp_act", "fc1 output before the activation (n, F)", "normed input"}};

}  // namespace

constinit const Kind kinds::mlp = {
    {.letter = '-',
     .name = "dense MLP",
     .scope = "mlp",
     .norm_module = "mlp_norm",
     .input_module = "mlp_fc1",
     .modules = kModules},
    {.flops = flops, .rows = append_rows<&ModelConfig::mlp>, .check = check_sizes, .slim = slim}};

}  // namespace stowage::layers
