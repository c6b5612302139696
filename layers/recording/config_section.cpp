// Rows of [model] that all layers share.
#include "layers/recording/config_section.hpp"

#include <algorithm>
#include <cctype>

#include "inputs/data/data_section.hpp"
#include "inputs/data/run_section.hpp"
#include "inputs/deck/check.hpp"
#include "layers/recording/kind.hpp"

namespace stowage::inputs {

using layers::ModelConfig;

template <>
std::vector<Row<ModelConfig>> rows<ModelConfig>() {
  static const std::string pattern_help =
      "One letter a layer: " + layer_kinds_text() + "; | marks a pipeline cut.";
  std::vector<Row<ModelConfig>> all = {
      row(&ModelConfig::pattern, {.key = "model.pattern", .numerics = true, .help = pattern_help}),
      row(&ModelConfig::width, {.key = "model.hidden_size",
                                .range = between(1, kMostWidth),
                                .numerics = true,
                                .help = "Model width D."}),
      row(&ModelConfig::vocabulary,
          {.key = "model.vocab_size",
           .range = between(2, 2147483647),
           .numerics = true,
           .help = "Vocabulary V; 256 for text, whose tokens are bytes."}),
      opposite(&ModelConfig::tied_embeddings,
               {.key = "model.untie_embeddings",
                .numerics = true,
                .help = "The output head has weights of its own instead of the embedding's."}),
      row(&ModelConfig::norm_epsilon, {.key = "model.norm_epsilon",
                                       .range = above(0),
                                       .numerics = true,
                                       .help = "Added to the mean square in every RMSNorm."}),
      row(&ModelConfig::init_std,
          {.key = "model.init_std",
           .range = above(0),
           .numerics = true,
           .help =
               "Deviation of initial weights; projections into the residual stream have init_std / "
               "sqrt(2 * layers)."}),
  };
  // Layers of any transformer, whose letters are signs, come first.
  std::vector<const layers::Kind*> kinds = layers::all_kinds();
  std::ranges::stable_partition(kinds,
                                [](const layers::Kind* k) { return std::ispunct(k->letter); });
  for (const layers::Kind* kind : kinds)
    if (kind->rows) kind->rows(all);
  append(all, &ModelConfig::fp8);
  return all;
}

template <>
std::vector<Row<ModelConfig::Fp8>> rows<ModelConfig::Fp8>() {
  using Fp8 = ModelConfig::Fp8;
  return {
      row(&Fp8::on,
          {.key = "train.precision",
           .numerics = true,
           .help = "Products of in_proj, out_proj, qkv, proj, dense MLPs and shared experts: of "
                   "dtype, or of 8 bits, each factor with a scale of its own. What is stored stays "
                   "in dtype."},
          {{"dtype", false}, {"fp8", true}}),
      row(&Fp8::first_layers, {.key = "train.fp8_first_layers",
                               .unit = "layers",
                               .range = between(0, kMostCount),
                               .numerics = true,
                               .help = "With precision fp8: first layers that stay in dtype."}),
      row(&Fp8::last_layers, {.key = "train.fp8_last_layers",
                              .unit = "layers",
                              .range = between(0, kMostCount),
                              .numerics = true,
                              .help = "With precision fp8: last layers that stay in dtype."}),
      row(&Fp8::gradients,
          {.key = "train.fp8_gradients",
           .numerics = true,
           .help =
               "With precision fp8: the format of gradients. Activations and weights are e4m3."},
          {{"e5m2", execution::Dtype::e5m2}, {"e4m3", execution::Dtype::e4m3}}),
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

/// The pattern's letters, and its cuts.
void check_pattern(const std::string& pattern, const Deck& deck) {
  const std::string_view name = key(&ModelConfig::pattern);
  if (pattern.empty()) throw_usage("{} is empty: a model needs a letter for each layer", name);
  constexpr std::size_t kMostLayers = 4096;
  if (pattern.size() > kMostLayers)
    throw_usage("{} ({}) has {} letters; at most {}", name, deck.where(name), pattern.size(),
                kMostLayers);
  const std::size_t bad = pattern.find_first_not_of(inputs::layer_letters() + '|');
  if (bad != std::string::npos)
    throw_usage("{}: letter '{}' at position {} is unknown: {}, | pipeline cut", deck.cite(name),
                pattern[bad], bad + 1, inputs::layer_kinds_text());
  if (pattern.front() == '|' || pattern.back() == '|' || pattern.find("||") != std::string::npos)
    throw_usage("{}: a pipeline cut | must stand between two layers", deck.cite(name));
}

}  // namespace

void check(const ModelConfig& model, const Deck& deck) {
  const std::string& pattern = model.pattern;
  check_pattern(pattern, deck);
  const std::string_view width = key(&ModelConfig::width);
  check_product(deck, "elements of the embedding", {key(&ModelConfig::vocabulary), width});
  check_product(deck, "elements of the residual stream",
                {key(&TrainConfig::micro_batch_size), key(&TrainConfig::seq_length), width});
  for (const Kind* kind : all_kinds())
    if (kind->check && kind->in(pattern)) kind->check(model, deck);
  using Fp8 = ModelConfig::Fp8;
  if (model.fp8.on && model.fp8.first_layers + model.fp8.last_layers >= model.layers())
    throw_usage("{} with {} and {} quantises none of the {} layers of {}", cite(deck, &Fp8::on),
                cite(deck, &Fp8::first_layers), cite(deck, &Fp8::last_layers), model.layers(),
                key(&ModelConfig::pattern));
  if (read(deck, &inputs::DataConfig::document_token) >= model.vocabulary)
    throw_usage("{} must be below {}", cite(deck, &inputs::DataConfig::document_token),
                cite(deck, &ModelConfig::vocabulary));
}

}  // namespace stowage::layers
