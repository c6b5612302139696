// Rows of [model] that all layers share.
#include "layers/recording/config_section.hpp"

#include <fmt/core.h>

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
      row(&ModelConfig::zero_centred_norms,
          {.key = "model.apply_layernorm_1p",
           .numerics = true,
           .help = "RMSNorms before layers, of the head, and of query and key heads scale by 1 + "
                   "weight, of weights that begin at 0 (zero-centred). Those inside of Mamba-2 and "
                   "gated DeltaNet keep plain weights."}),
      row(&ModelConfig::init_std,
          {.key = "model.init_std",
           .range = above(0),
           .numerics = true,
           .help =
               "Deviation of initial weights; projections into the residual stream have init_std / "
               "sqrt(2 * layers)."}),
      row(&ModelConfig::z_loss_coeff,
          {.key = "train.z_loss_coeff",
           .range = at_least(0),
           .numerics = true,
           .help = "Weight of the z-loss: the mean over the counted targets of the squared "
                   "log-sum-exp of their logits, as in PaLM, which has 1e-4. Its series is "
                   "head/z_loss; train/loss stays the cross-entropy. Heads of further tokens have "
                   "none. 0: no z-loss, at no cost."}),
  };
  // Layers of any transformer, whose letters are signs, come first.
  std::vector<const layers::Kind*> kinds = layers::all_kinds();
  std::ranges::stable_partition(kinds,
                                [](const layers::Kind* k) { return std::ispunct(k->letter); });
  for (const layers::Kind* kind : kinds) {
    const std::size_t before = all.size();
    if (kind->rows) kind->rows(all);
    for (std::size_t i = before; i < all.size(); ++i) all[i].parameter.letter = {&kind->letter, 1};
  }
  append(all, &ModelConfig::mtp);
  append(all, &ModelConfig::products);
  return all;
}

template <>
std::vector<Row<ModelConfig::Mtp>> rows<ModelConfig::Mtp>() {
  using Mtp = ModelConfig::Mtp;
  constexpr double kMostDepths = 16;
  return {
      row(&Mtp::depths,
          {.key = "model.mtp_num_layers",
           .range = between(0, kMostDepths),
           .numerics = true,
           .help = "Multi-token prediction: how many tokens behind the next one heads of their own "
                   "predict in training. 0: none."}),
      row(&Mtp::pattern, {.key = "model.mtp_pattern",
                          .numerics = true,
                          .help = "One letter for each layer of a block of multi-token prediction, "
                                  "such as *E."}),
      row(&Mtp::shared, {.key = "model.mtp_use_repeated_layer",
                         .numerics = true,
                         .help = "All depths of multi-token prediction have one block, which hands "
                                 "its result to itself. Otherwise each has its own."}),
      row(&Mtp::loss_factor,
          {.key = "model.mtp_loss_scaling_factor",
           .range = above(0),
           .numerics = true,
           .help = "Weight of the mean of the losses of multi-token prediction, each divided by "
                   "the number of targets of the next tokens."}),
      row(&Mtp::evaluated, {.key = "eval.mtp_loss",
                            .help = "Evaluations tell the loss of each depth of multi-token "
                                    "prediction too, which takes its time. Its series is "
                                    "mtp/val_loss in the result set."}),
  };
}

/// "of dtype, or of 8 bits": what the precisions are, and their names.
std::string precision_help() {
  std::string all;
  for (const layers::ProductPrecision* precision : layers::kProductPrecisions)
    all += (all.empty() ? "" : ", or ") + std::string(precision->help);
  return all;
}

template <>
std::vector<Row<ModelConfig::Products>> rows<ModelConfig::Products>() {
  using Products = ModelConfig::Products;
  static const std::string help =
      "Products of in_proj, out_proj, qkv, proj, dense MLPs and shared experts: " +
      precision_help() + ". What is stored stays in dtype.";
  return {
      row(&Products::precision, {.key = "train.precision", .numerics = true, .help = help},
          words_of(layers::kProductPrecisions)),
      row(&Products::first_layers,
          {.key = "train.fp8_first_layers",
           .unit = "layers",
           .range = between(0, kMostCount),
           .numerics = true,
           .help = "With precision fp8: first layers that stay in dtype."}),
      row(&Products::last_layers, {.key = "train.fp8_last_layers",
                                   .unit = "layers",
                                   .range = between(0, kMostCount),
                                   .numerics = true,
                                   .help = "With precision fp8: last layers that stay in dtype."}),
      row(&Products::gradients,
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

void check_mtp(const ModelConfig::Mtp& mtp, const Deck& deck) {
  using Mtp = ModelConfig::Mtp;
  if (mtp.depths == 0) {
    if (mtp.evaluated)
      throw_usage("{} needs {} above 0", cite(deck, &Mtp::evaluated), key(&Mtp::depths));
    if (!mtp.pattern.empty())
      throw_usage("{} needs {} above 0", cite(deck, &Mtp::pattern), key(&Mtp::depths));
    if (mtp.shared) throw_usage("{} needs {} above 0", cite(deck, &Mtp::shared), key(&Mtp::depths));
    return;
  }
  if (mtp.pattern.empty())
    throw_usage("{} needs {}: a letter for each layer of a block", cite(deck, &Mtp::depths),
                key(&Mtp::pattern));
  const std::size_t bad = mtp.pattern.find_first_not_of(inputs::layer_letters());
  if (bad != std::string::npos)
    throw_usage("{}: letter '{}' at position {} is unknown: {}", cite(deck, &Mtp::pattern),
                mtp.pattern[bad], bad + 1, inputs::layer_kinds_text());
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
    if (kind->check && kind->in(model.letters())) kind->check(model, deck);
  check_mtp(model.mtp, deck);
  using Products = ModelConfig::Products;
  const Products& products = model.products;
  if (products.precision->factors && products.first_layers + products.last_layers >= model.layers())
    throw_usage("{} with {} and {} quantises none of the {} layers of {}",
                cite(deck, &Products::precision), cite(deck, &Products::first_layers),
                cite(deck, &Products::last_layers), model.layers(), key(&ModelConfig::pattern));
  if (read(deck, &inputs::DataConfig::document_token) >= model.vocabulary)
    throw_usage("{} must be below {}", cite(deck, &inputs::DataConfig::document_token),
                cite(deck, &ModelConfig::vocabulary));
}

void require_products(const Deck& deck, int capability) {
  const ProductPrecision& wanted = *read(deck, &ModelConfig::Products::precision);
  if (capability >= wanted.capability) return;
  const std::string allowed = inputs::names_of(
      kProductPrecisions, [&](const auto& other) { return capability >= other.capability; });
  throw_usage(
      "{} needs a GPU of compute capability {}.{} or newer, this one has {}.{}; allowed: {}",
      cite(deck, &ModelConfig::Products::precision), wanted.capability / 10, wanted.capability % 10,
      capability / 10, capability % 10, allowed);
}

}  // namespace stowage::layers
