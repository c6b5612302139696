#include "run/state/start_weights.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "execution/error.hpp"
#include "forecast/plan/run_section.hpp"
#include "layers/recording/config_section.hpp"
#include "run/state/weights.hpp"

namespace stowage::run {

namespace hf = inputs::huggingface;

namespace {

constexpr std::string_view kFolder = "hf:";

/// Keys of [model] that say how it is trained or computed: weights fit whatever they are.
bool is_of_training(std::string_view key) {
  using layers::ModelConfig;
  static const std::array<std::string_view, 6> all = {
      inputs::key(&ModelConfig::init_std),     inputs::key(&ModelConfig::Moe::aux_coeff),
      inputs::key(&ModelConfig::Moe::z_coeff), inputs::key(&ModelConfig::Mamba::form),
      inputs::key(&ModelConfig::Mamba::chunk), inputs::key(&ModelConfig::Moe::bias_rate)};
  return std::ranges::find(all, key) != all.end();
}

bool is_of_model(std::string_view key) {
  return key != inputs::key(&layers::ModelConfig::pattern) && !is_of_training(key);
}

/// Keys of the deck that say another model than the checkpoint's.
std::vector<std::string> other_than_model(const inputs::Deck& deck,
                                          const results::Checkpoint& found) {
  const inputs::Deck saved = inputs::Deck::parse_stored(found.state().deck, found.path().string());
  std::vector<std::string> keys;
  for (const inputs::Deck::Row& row : deck.rows())
    if (row.parameter.section() == "model" && is_of_model(row.key) &&
        saved.value(row.key) != row.value)
      keys.push_back(fmt::format("{}, the weights are of {}", deck.cite(row.key),
                                 inputs::to_toml(saved.value(row.key))));
  const auto pattern = [](const inputs::Deck& of) {
    return hf::without_cuts(inputs::read(of, &layers::ModelConfig::pattern));
  };
  if (pattern(saved) != pattern(deck))
    keys.push_back(fmt::format("{}, the weights are of \"{}\"",
                               inputs::cite(deck, &layers::ModelConfig::pattern), pattern(saved)));
  return keys;
}

}  // namespace

bool StartWeights::are_at(const std::string& found) {
  return found.starts_with(kFolder) || holds_only_weights(results::Checkpoint(found).state());
}

std::string StartWeights::folder_of(const std::string& resume) {
  return resume.starts_with(kFolder) ? resume.substr(kFolder.size()) : std::string();
}

StartWeights::StartWeights(const inputs::Deck& deck, const std::string& found) : origin_(found) {
  const bool strict = !inputs::read(deck, &forecast::CheckpointConfig::allow_changes);
  const auto require_same = [&] {
    if (strict && !changes_.empty())
      execution::throw_usage(
          "{} holds weights of another model than the deck's; change it back, or say "
          "{}=true:\n  {}",
          origin_, inputs::key(&forecast::CheckpointConfig::allow_changes),
          fmt::join(changes_, "\n  "));
  };
  if (found.starts_with(kFolder)) {
    origin_ = found.substr(kFolder.size());
    PublishedModel model = open_model(origin_, {.all = !strict});
    changes_ = hf::other_than_model(model.config, deck, origin_);
    for (const std::string& key : model.config.unknown)
      changes_.push_back(fmt::format("{} of {} is not known and passed over", key, origin_));
    require_same();
    folder_ = std::make_unique<FolderWeights>(std::move(model), deck);
  } else {
    checkpoint_ = std::make_unique<results::Checkpoint>(found);
    changes_ = other_than_model(deck, *checkpoint_);
    require_same();
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

}  // namespace stowage::run
