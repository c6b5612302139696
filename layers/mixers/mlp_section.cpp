// Rows of [model] about the dense MLP.
#include "inputs/deck/check.hpp"
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

void check(const ModelConfig::Mlp&, const Deck& deck) {
  check_product(deck, "elements of a weight",
                {key(&ModelConfig::width), key(&ModelConfig::Mlp::ffn)});
}

}  // namespace stowage::layers
