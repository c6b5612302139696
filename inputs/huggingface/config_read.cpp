// From config.json to the keys of a deck.
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <set>

#include "execution/error.hpp"
#include "inputs/huggingface/config.hpp"
#include "inputs/huggingface/config_json.hpp"
#include "inputs/huggingface/folder_file.hpp"
#include "inputs/huggingface/json_limits.hpp"
#include "inputs/huggingface/model_folder.hpp"

namespace stowage::inputs::huggingface {

using execution::throw_usage;
using Json = nlohmann::ordered_json;

namespace {

/// Of config.json, at most: the longest have names of some ten thousand classes.
constexpr std::int64_t kMaxConfigBytes = std::int64_t{16} << 20;

const Family& family_in(const Json& json, std::string_view origin) {
  if (!json.is_object() || !json.contains("model_type") || !json["model_type"].is_string())
    throw_usage("{}: has no model_type", origin);
  return family_of(detail::shown_text(json["model_type"].get<std::string>()), origin);
}

/// What counts where the key is missing or null.
Json fallback_of(const ConfigRow& row) {
  return detail::parse_python_json(row.fallback, row.theirs.empty() ? row.ours : row.theirs[0]);
}

class Reader {
 public:
  Reader(const Json& json, std::string_view origin)
      : json_(json), origin_(origin), family_(family_in(json, origin)) {}

  Config read(const PassedOver& passed) {
    config_.family = &family_;
    for (const ConfigRow& row : family_.config)
      if (row.meaning == Meaning::pattern || row.meaning == Meaning::layers) read_pattern(row);
    if (const ConfigRow* row = row_of(Meaning::further)) read_further(*row);
    for (const ConfigRow& row : family_.config) read_row(row);
    for (const std::string_view key : common_keys()) used_.insert(std::string(key));
    pass_over(passed);
    for (const char* key : {"dtype", "torch_dtype"})
      if (json_.contains(key)) read_dtype(json_[key]);
    return std::move(config_);
  }

 private:
  /// What no family has: null says nothing, the rest is passed over only where that is asked for.
  void pass_over(const PassedOver& passed) {
    std::set<std::string> named(passed.keys.begin(), passed.keys.end());
    for (const auto& [key, value] : json_.items()) {
      if (used_.contains(key)) continue;
      if (named.erase(key) == 0 && !passed.all && !value.is_null())
        throw_usage(
            "{}: {} = {} is not known of the family {}; it may change the model. If it does not: "
            "stowage_convert import --ignore-key {}, or for a run checkpoint.allow_changes=true",
            origin_, detail::shown_text(key), detail::shown(value), family_.model_type,
            detail::shown_text(key));
      config_.ignored.push_back(detail::shown_text(key));
      if (!value.is_null()) config_.unknown.push_back(detail::shown_text(key));
    }
    if (!named.empty())
      throw_usage("--ignore-key {}: allowed: keys of {} that are not known", *named.begin(),
                  origin_);
  }

  [[noreturn]] void refuse(std::string_view key, const Json& value, std::string_view allowed) {
    throw_usage("{}: {} = {}; allowed: {}", origin_, key, detail::shown(value), allowed);
  }

  /// The value of a row's key, whichever of its names it has; null: none.
  Json take(const ConfigRow& row) {
    Json found;
    std::string_view name;
    for (const std::string_view key : row.theirs) {
      const auto at = json_.find(std::string(key));
      if (at == json_.end()) continue;
      used_.insert(std::string(key));
      if (at->is_null()) continue;
      if (!found.is_null() && normal(row, found) != normal(row, *at))
        throw_usage("{}: {} = {} contradicts {} = {}", origin_, name, detail::shown(found), key,
                    detail::shown(*at));
      found = *at;
      name = key;
    }
    return found;
  }

  /// Values that say the same are equal.
  Json normal(const ConfigRow& row, const Json& value) {
    const bool of_layers =
        row.meaning == Meaning::pattern || row.meaning == Meaning::further_pattern;
    return of_layers ? Json(pattern_text(row, value)) : detail::with_plain_numbers(value);
  }

  Json take_or_fallback(const ConfigRow& row) {
    Json value = take(row);
    if (!value.is_null()) return value;
    if (row.fallback.empty()) throw_usage("{}: has no {}", origin_, row.theirs[0]);
    return fallback_of(row);
  }

  /// The letters of a list of the family's words. @param key in messages
  std::string letters_of(std::string_view key, const Json& list) {
    std::string letters;
    for (const Json& item : list) {
      const auto word = std::ranges::find_if(family_.words, [&](const Word& one) {
        return item.is_string() && item.get<std::string>() == one.theirs;
      });
      if (word == family_.words.end()) {
        std::string allowed;
        for (const Word& one : family_.words)
          allowed += (allowed.empty() ? "" : ", ") + std::string(one.theirs);
        refuse(key, item, allowed);
      }
      letters += word->ours;
    }
    return letters;
  }

  std::string pattern_text(const ConfigRow& row, const Json& value) {
    const std::string_view key = key_in_file(row);
    if (value.is_array()) return letters_of(key, value);
    if (!value.is_string()) refuse(key, value, "a list of words, or a string of letters");
    std::string known;
    for (const Word& word : family_.words)
      if (known.find(word.ours) == std::string::npos) known += word.ours;
    auto letters = value.get<std::string>();
    if (letters.find_first_not_of(known) != std::string::npos)
      refuse(key, value, fmt::format("the letters {}", fmt::join(known, ", ")));
    return letters;
  }

  /// 1 to 100000, by type: a comparison with an int takes what is above 2^63 as negative.
  std::int64_t count(std::string_view key, const Json& value) {
    const bool counts = value.is_number_unsigned();
    if (const auto n = counts ? value.get<std::uint64_t>() : 0; n == 0 || n > 100000)
      refuse(key, value, "1 to 100000");
    return value.get<std::int64_t>();
  }

  const ConfigRow* row_of(Meaning meaning) const {
    const auto row = std::ranges::find(family_.config, meaning, &ConfigRow::meaning);
    return row == family_.config.end() ? nullptr : &*row;
  }

  void read_pattern(const ConfigRow& row) {
    const ConfigRow* period = row_of(Meaning::period);
    const Json value = period ? take(row) : take_or_fallback(row);
    const auto layers = json_.find("num_hidden_layers");
    const bool counted = layers != json_.end() && !layers->is_null();
    if (row.meaning == Meaning::layers) {
      for (auto block = count(row.theirs[0], value); block > 0; --block) pattern_ += family_.block;
    } else if (value.is_null()) {
      if (!counted) throw_usage("{}: has neither {} nor num_hidden_layers", origin_, row.theirs[0]);
      pattern_ = periodic_pattern(family_, count("num_hidden_layers", *layers),
                                  count(period->theirs[0], take_or_fallback(*period)));
    } else {
      pattern_ = pattern_text(row, value);
      if (const std::size_t found = pattern_.size() / family_.letters();
          counted && *layers != found)
        throw_usage("{}: num_hidden_layers = {} contradicts {} of {} layers", origin_,
                    detail::shown(*layers), row.theirs[0], found);
    }
    if (period) used_.insert({"num_hidden_layers", std::string(period->theirs[0])});
    config_.keys.emplace_back(row.ours, pattern_);
    config_.places.emplace(row.ours, place_of(row));
  }

  /// Blocks that predict further tokens, and their layers.
  void read_further(const ConfigRow& row) {
    const ConfigRow& of_layers = *row_of(Meaning::further_pattern);
    const Json value = take_or_fallback(row);
    const std::int64_t blocks = integer(row, value);
    if (blocks < 0) refuse(row.theirs[0], value, "at least 0");
    const Json layers = take_or_fallback(of_layers);
    if (blocks == 0) return;
    further_ = pattern_text(of_layers, layers);
    add(row.ours, blocks);
    add(of_layers.ours, further_);
    config_.places.emplace(row.ours, place_of(row));
    config_.places.emplace(of_layers.ours, place_of(of_layers));
  }

  /// Where a row's value stands, for messages.
  std::string place_of(const ConfigRow& row) const {
    if (const std::string_view key = given_key(row); !key.empty())
      return fmt::format("{}, {}", origin_, key);
    return row.theirs.empty() ? fmt::format("{}, a {}", origin_, family_.model_type)
                              : fmt::format("{}, which has no {}", origin_, row.theirs[0]);
  }

  /// The words of the layers, where the file has them, say what the pattern says.
  void read_words(const ConfigRow& row) {
    const Json value = take(row);
    if (value.is_null()) return;
    const std::string_view key = key_in_file(row);
    if (!value.is_array()) refuse(key, value, "a list of words");
    if (const std::string letters = letters_of(key, value); letters != pattern_)
      throw_usage("{}: {} of {} layers contradicts num_hidden_layers = {}", origin_, key,
                  value.size(), pattern_.size() / std::max<std::size_t>(1, family_.block.size()));
  }

  bool matters(const ConfigRow& row) const {
    return row.letters.empty() ||
           (pattern_ + further_).find_first_of(row.letters) != std::string::npos;
  }

  void read_row(const ConfigRow& row) {
    switch (row.meaning) {
      case Meaning::pattern:
      case Meaning::period:
      case Meaning::layers:
      case Meaning::further:
      case Meaning::further_pattern:
        return;
      case Meaning::words:
        return read_words(row);
      case Meaning::ignored:
        for (const std::string_view key : row.theirs)
          if (json_.contains(std::string(key)) && used_.insert(std::string(key)).second)
            config_.ignored.emplace_back(key);
        return;
      case Meaning::fixed:
        if (const Json value = take_or_fallback(row); value != fallback_of(row))
          throw_usage("{}: {} = {}: not supported: {}; allowed: {}", origin_, row.theirs[0],
                      detail::shown(value), row.help, row.fallback);
        return;
      case Meaning::same:
      case Meaning::positive:
      case Meaning::or_null:
      case Meaning::opposite:
      case Meaning::ours_fixed:
      case Meaning::limits:
      case Meaning::rope:
      case Meaning::rotary_part:
        break;
    }
    Json value = row.meaning == Meaning::ours_fixed ? fallback_of(row) : take_or_fallback(row);
    if (!matters(row)) return;
    if (row.meaning == Meaning::rotary_part) value = rotary_part(row, value);
    const auto before = std::ssize(config_.keys);
    read_value(row, value);
    for (auto key = config_.keys.begin() + before; key != config_.keys.end(); ++key)
      config_.places.emplace(key->first, place_of(row));
  }

  void read_value(const ConfigRow& row, const Json& value) {
    switch (row.meaning) {
      case Meaning::limits:
        return read_limits(row, value);
      case Meaning::rope:
        return read_rope(row, value);
      case Meaning::rotary_part:
        return add(row.ours, number(row.theirs[0], value));
      case Meaning::opposite:
        return add(row.ours, !flag(row, value));
      case Meaning::same:
      case Meaning::positive:
      case Meaning::ours_fixed:
        return read_same(row, value);
      case Meaning::or_null:
        return add(row.ours, value.is_null() ? std::int64_t{0} : integer(row, value));
      case Meaning::fixed:
      case Meaning::ignored:
      case Meaning::pattern:
      case Meaning::period:
      case Meaning::layers:
      case Meaning::further:
      case Meaning::further_pattern:
      case Meaning::words:
        return;  // read_row
    }
  }

  void read_limits(const ConfigRow& row, const Json& value) {
    if (!value.is_array() || value.size() != 2) refuse(row.theirs[0], value, "two numbers");
    const auto low = detail::number_of(value[0]), high = detail::number_of(value[1]);
    if (!low || !high) refuse(row.theirs[0], value, "two numbers");
    add("model.mamba_dt_min", *low);
    add("model.mamba_dt_max", *high);
  }

  void read_same(const ConfigRow& row, const Json& value) {
    const Value& like = find(row.ours)->fallback;
    if (std::holds_alternative<std::int64_t>(like)) {
      add(row.ours, integer(row, value));
    } else if (std::holds_alternative<double>(like)) {
      add(row.ours, number(name_of(row), value));
    } else if (std::holds_alternative<bool>(like)) {
      add(row.ours, flag(row, value));
    } else {
      if (!value.is_string()) refuse(name_of(row), value, row.fallback);
      add(row.ours, word_of(row, value.get<std::string>()));
    }
  }

  std::int64_t integer(const ConfigRow& row, const Json& value) {
    constexpr auto kMost = std::uint64_t{std::numeric_limits<std::int64_t>::max()};
    if (!value.is_number_integer()) refuse(name_of(row), value, "an integer");
    if (value.is_number_unsigned() && value.get<std::uint64_t>() > kMost)
      refuse(name_of(row), value, "an integer of at most 2^63 - 1");
    const auto number = value.get<std::int64_t>();
    if (row.meaning == Meaning::positive && number <= 0) refuse(name_of(row), value, "above 0");
    return number;
  }

  double number(std::string_view name, const Json& value) {
    const std::optional<double> number = detail::number_of(value);
    if (!number) refuse(name, value, "a number");
    return *number;
  }

  bool flag(const ConfigRow& row, const Json& value) {
    if (!value.is_boolean()) refuse(name_of(row), value, "true or false");
    return value.get<bool>();
  }

  /// The first of a row's keys that the file has; empty if it has none.
  std::string_view given_key(const ConfigRow& row) const {
    for (const std::string_view key : row.theirs)
      if (const auto at = json_.find(std::string(key)); at != json_.end() && !at->is_null())
        return key;
    return {};
  }

  /// The same for messages: the first key's name if the file has none.
  std::string_view key_in_file(const ConfigRow& row) const {
    const std::string_view key = given_key(row);
    return key.empty() ? row.theirs[0] : key;
  }

  /// A row in messages.
  static std::string_view name_of(const ConfigRow& row) {
    return row.theirs.empty() ? row.ours : row.theirs[0];
  }

  std::string word_of(const ConfigRow& row, const std::string& theirs) {
    if (row.meaning == Meaning::ours_fixed) return theirs;
    const std::string meant = Json::parse(row.fallback).get<std::string>();
    for (const Word& word : words())
      if (word.theirs == theirs && theirs == meant) return std::string(word.ours);
    refuse(name_of(row), theirs, row.fallback);
  }

  /// What the object of the rope says, if it does. @param outside of it
  Json rotary_part(const ConfigRow& row, const Json& outside) {
    for (const std::string_view name : row_of(Meaning::rope)->theirs) {
      const auto at = json_.find(std::string(name));
      if (at == json_.end() || !at->is_object()) continue;
      const Json inside = at->value(std::string(row.theirs[0]), Json());
      if (inside.is_null()) continue;
      if (!given_key(row).empty() && inside != outside)
        throw_usage("{}: {} = {} contradicts {} = {}", origin_, row.theirs[0],
                    detail::shown(outside), name, detail::shown(*at));
      return inside;
    }
    return outside;
  }

  /// What an object of rotary embeddings may have beside its type: of Qwen's, the part of a head,
  /// and which columns turn by which of an image's positions, all of which a text has alike.
  bool is_rope_key(std::string_view key) const {
    const ConfigRow* part = row_of(Meaning::rotary_part);
    return key == "rope_theta" || key == "rope_type" || key == "type" ||
           (part && (key == part->theirs[0] || key.starts_with("mrope_")));
  }

  void read_rope(const ConfigRow& row, const Json& value) {
    const auto has = [&](std::string_view key) {
      const auto at = json_.find(std::string(key));
      return at != json_.end() && !at->is_null();
    };
    const std::string_view name = has(row.theirs[0]) ? row.theirs[0] : row.theirs[1];
    if (!value.is_object()) refuse(name, value, "an object");
    Json type = value.value("rope_type", Json());
    if (type.is_null()) type = value.value("type", Json());
    if (type.is_null()) type = "default";
    if (type != "default" && type != "llama3")
      throw_usage("{}: {}: rope_type = {}: not supported; allowed: \"default\", \"llama3\"",
                  origin_, name, detail::shown(type));
    for (const auto& [key, held] : value.items())
      if (!is_rope_key(key) && !held.is_null() && (type == "default" || !is_scaling(key)))
        throw_usage("{}: {}: {} = {}: not supported with rope_type {}", origin_, name,
                    detail::shown_text(key), detail::shown(held), detail::shown(type));
    Json theta = value.value("rope_theta", Json());
    used_.insert("rope_theta");
    if (has("rope_theta")) {
      if (has(name) && !theta.is_null() && theta != json_["rope_theta"])
        throw_usage("{}: rope_theta = {} contradicts {} = {}", origin_,
                    detail::shown(json_["rope_theta"]), name, detail::shown(value));
      theta = json_["rope_theta"];
    }
    if (theta.is_null()) theta = fallback_of(row)["rope_theta"];
    add(row.ours, number("rope_theta", theta));
    if (type == "default") return add("model.rope_scaling_factor", 1.0);
    for (const Word& word : scaling_words()) {
      if (!value.contains(std::string(word.theirs)))
        throw_usage("{}: {}: rope_type \"llama3\" needs {}", origin_, name, word.theirs);
      add(word.ours, number(word.theirs, value[std::string(word.theirs)]));
    }
  }

  static bool is_scaling(std::string_view key) {
    return std::any_of(scaling_words().begin(), scaling_words().end(),
                       [&](const Word& word) { return word.theirs == key; });
  }

  /// As all versions write it: "bfloat16", "torch.bfloat16".
  void read_dtype(const Json& value) {
    if (!value.is_string()) return;
    std::string word = value.get<std::string>();
    if (word.starts_with("torch.")) word.erase(0, std::string_view("torch.").size());
    for (const Word& known : dtype_words())
      if (known.theirs == word) config_.dtype = known.ours;
  }

  void add(std::string_view key, Value value) { config_.keys.emplace_back(key, std::move(value)); }

  const Json& json_;
  std::string_view origin_;
  const Family& family_;
  std::string pattern_, further_;
  std::set<std::string> used_;
  Config config_;
};

}  // namespace

Config parse_config(std::string_view text, std::string_view origin, const PassedOver& passed) {
  const Json json = detail::parse_python_json(text, origin);
  return Reader(json, origin).read(passed);
}

std::string read_config_text(const std::string& folder) {
  return read_text(path_in(folder, kConfigFile), kMaxConfigBytes);
}

Config read_config(const std::string& folder, const PassedOver& passed) {
  return parse_config(read_config_text(folder), path_in(folder, kConfigFile), passed);
}

const Family& read_family(const std::string& folder) {
  const std::string path = path_in(folder, kConfigFile);
  return family_in(detail::parse_python_json(read_config_text(folder), path), path);
}

std::string Config::deck_text() const {
  std::string text = "[model]\n";
  for (const auto& [key, value] : keys)
    text += fmt::format("{} = {}\n", find(key)->name(), to_toml(value));
  return text;
}

}  // namespace stowage::inputs::huggingface
