#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inputs/deck/deck.hpp"
#include "inputs/huggingface/family.hpp"
#include "inputs/huggingface/names.hpp"

namespace stowage::inputs::huggingface {

/// A model as its config.json describes it, in the words of a deck.
struct Config {
  const Family* family = nullptr;
  std::vector<std::pair<std::string, Value>> keys;  ///< keys of [model] and their values
  std::string dtype;  ///< train.dtype; empty if the file does not say or it is not ours
  std::vector<std::string> ignored;  ///< keys that decide nothing that is computed

  /// A deck of these keys alone, as TOML.
  std::string deck_text() const;
};

/// Reads config.json. @throws Error (exit 2) that names `origin`, key, value and what is allowed,
/// for a key that is not known, that contradicts another, or that asks for what Stowage cannot do
Config parse_config(std::string_view text, std::string_view origin);

/// The same of a folder.
Config read_config(const std::string& folder);

/// The family of the deck's model: the first that can say it.
/// @throws Error (exit 2) that says for every family why not
const Family& family_of(const Deck& deck);

/// config.json of a deck's model. @throws Error (exit 2) if the family cannot say it
/// @param like text of another config.json, whose other keys are taken over; or empty
std::string config_text(const Family& family, const Deck& deck, std::string_view like);

/// Throws a usage error that cites every key of the deck that says another model than the folder's
/// config.json.
void require_same_model(const Config& config, const Deck& deck, std::string_view origin);

ModelSizes sizes_of(const Deck& deck);

}  // namespace stowage::inputs::huggingface
