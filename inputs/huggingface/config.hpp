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
  Deck::Places places;  ///< by key of [model]: "model/config.json, num_attention_heads"
  std::string dtype;    ///< train.dtype; empty if the file does not say or it is not ours
  std::vector<std::string> ignored;  ///< keys that decide nothing that is computed
  std::vector<std::string> unknown;  ///< of them, what no family has and PassedOver let through

  /// A deck of these keys alone, as TOML.
  std::string deck_text() const;
};

/// Keys of config.json that are passed over although no family has them.
struct PassedOver {
  std::vector<std::string> keys = {};
  bool all = false;  ///< whatever else is not known, too
};

/// Reads config.json. A key that is null says nothing. @throws Error (exit 2) that names `origin`,
/// key, value and what is allowed, for a key that is not known, that contradicts another, or that
/// asks for what Stowage cannot do; and for a key of `passed` that need not be passed over
Config parse_config(std::string_view text, std::string_view origin, const PassedOver& passed = {});

/// The same of a folder.
Config read_config(const std::string& folder, const PassedOver& passed = {});

/// config.json as text: a plain file of the folder, of at most 16 MiB.
std::string read_config_text(const std::string& folder);

/// The family that a folder's config.json names, whatever its other keys say.
const Family& read_family(const std::string& folder);

/// The family of the deck's model: the first that can say it.
/// @throws Error (exit 2) that says for every family why not
const Family& family_of(const Deck& deck);

/// config.json of a deck's model. @throws Error (exit 2) if the family cannot say it
/// @param like text of another config.json, whose other keys are taken over; or empty
std::string config_text(const Family& family, const Deck& deck, std::string_view like);

/// Every key of the deck that says another model than the folder's config.json, and what that has.
std::vector<std::string> other_than_model(const Config& config, const Deck& deck,
                                          std::string_view origin);

ModelSizes sizes_of(const Deck& deck);

}  // namespace stowage::inputs::huggingface
