#include "drivers/train/start_weights.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "drivers/common/weights.hpp"
#include "execution/error.hpp"

namespace stowage::drivers {

namespace hf = inputs::huggingface;

namespace {

constexpr std::string_view kFolder = "hf:";

/// Keys of [model] that say how it is trained or computed: weights fit whatever they are.
constexpr std::array<std::string_view, 6> kOfTraining = {
    "model.init_std",    "model.moe_aux_loss_coeff", "model.moe_z_loss_coeff",
    "model.mamba_mixer", "model.mamba_chunk_size",   "model.moe_expert_bias_update_rate"};

bool is_of_model(std::string_view key) {
  return key != "model.pattern" &&
         std::find(kOfTraining.begin(), kOfTraining.end(), key) == kOfTraining.end();
}

void require_same_model(const inputs::Deck& deck, const results::Checkpoint& found) {
  const inputs::Deck saved =
      inputs::Deck::parse_stored(found.state().deck, found.path().string(), {}, nullptr);
  std::string keys;
  for (const inputs::Deck::Row& row : deck.rows())
    if (row.parameter.section() == "model" && is_of_model(row.key) &&
        saved.value(row.key) != row.value)
      keys += fmt::format("\n  {}, the weights are of {}", deck.cite(row.key),
                          inputs::to_toml(saved.value(row.key)));
  const auto pattern = [](const inputs::Deck& of) {
    return hf::without_cuts(of.get<std::string>("model.pattern"));
  };
  if (pattern(saved) != pattern(deck))
    keys += fmt::format("\n  {}, the weights are of \"{}\"", deck.cite("model.pattern"),
                        pattern(saved));
  if (!keys.empty())
    execution::throw_usage(
        "{} holds weights of another model; change the deck back, or say "
        "checkpoint.allow_changes=true:{}",
        found.path().string(), keys);
}

}  // namespace

bool StartWeights::are_at(const std::string& found) {
  return found.starts_with(kFolder) || holds_only_weights(results::Checkpoint(found).state());
}

StartWeights::StartWeights(const inputs::Deck& deck, const std::string& found) : origin_(found) {
  const bool strict = !deck.get<bool>("checkpoint.allow_changes");
  if (found.starts_with(kFolder)) {
    origin_ = found.substr(kFolder.size());
    const hf::Config config = hf::read_config(origin_);
    if (strict) hf::require_same_model(config, deck, origin_);
    folder_ = std::make_unique<FolderWeights>(origin_, *config.family, deck);
  } else {
    checkpoint_ = std::make_unique<results::Checkpoint>(found);
    if (strict) require_same_model(deck, *checkpoint_);
  }
}

void StartWeights::load(const WholeTensors& tensors) const {
  if (checkpoint_) {
    checkpoint_->load(starting_targets(tensors, checkpoint_->tensors(), origin_));
    return;
  }
  const std::vector<results::TensorSource> sources = folder_->sources();
  std::vector<results::TensorSpec> specs;
  for (const results::TensorSource& source : sources) specs.push_back(source.spec);
  copy_weights(sources, starting_targets(tensors, specs, origin_));
}

}  // namespace stowage::drivers
