// From config.json to the keys of a deck.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "execution/error.hpp"
#include "inputs/huggingface/config.hpp"
#include "inputs/huggingface/config_json.hpp"
#include "inputs/huggingface/model_folder.hpp"

namespace stowage::inputs::huggingface {

using execution::throw_usage;
using Json = nlohmann::ordered_json;

namespace {

/// Words of layers, of all versions.
char letter_of(std::string_view word) {
  if (word == "mamba" || word == "linear_attention") return 'M';
  if (word == "attention" || word == "full_attention") return '*';
  if (word == "mlp") return '-';
  return word == "moe" ? 'E' : '\0';
}

class Reader {
 public:
  Reader(const Json& json, std::string_view origin)
      : json_(json), origin_(origin), family_(family_of(model_type(), origin)) {}

  Config read() {
    config_.family = &family_;
    for (const ConfigRow& row : family_.config)
      if (row.meaning == Meaning::pattern || row.meaning == Meaning::layers) read_pattern(row);
    for (const ConfigRow& row : family_.config) read_row(row);
    for (const std::string_view key : common_keys()) used_.insert(std::string(key));
    for (const auto& [key, value] : json_.items())
      if (!used_.contains(key))
        throw_usage("{}: {} = {} is not known of the family {}; it may change the model", origin_,
                    key, value.dump(), family_.model_type);
    for (const char* key : {"dtype", "torch_dtype"})
      if (json_.contains(key)) read_dtype(json_[key]);
    return std::move(config_);
  }

 private:
  std::string model_type() const {
    if (!json_.is_object() || !json_.contains("model_type") || !json_["model_type"].is_string())
      throw_usage("{}: has no model_type", origin_);
    return json_["model_type"].get<std::string>();
  }

  [[noreturn]] void refuse(std::string_view key, const Json& value, std::string_view allowed) {
    throw_usage("{}: {} = {}; allowed: {}", origin_, key, value.dump(), allowed);
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
        throw_usage("{}: {} = {} contradicts {} = {}", origin_, name, found.dump(), key,
                    at->dump());
      found = *at;
      name = key;
    }
    return found;
  }

  /// Values that say the same are equal.
  Json normal(const ConfigRow& row, const Json& value) {
    return row.meaning == Meaning::pattern ? Json(pattern_text(row, value)) : value;
  }

  Json take_or_fallback(const ConfigRow& row) {
    Json value = take(row);
    if (!value.is_null()) return value;
    if (row.fallback.empty()) throw_usage("{}: has no {}", origin_, row.theirs[0]);
    return Json::parse(row.fallback);
  }

  std::string pattern_text(const ConfigRow& row, const Json& value) {
    if (value.is_string()) return value.get<std::string>();
    std::string letters;
    if (!value.is_array()) refuse(row.theirs[0], value, "a list of words, or a string of letters");
    for (const Json& word : value) {
      const char letter = word.is_string() ? letter_of(word.get<std::string>()) : '\0';
      if (letter == '\0')
        refuse(row.theirs[0], word,
               "mamba or linear_attention, attention or full_attention, mlp, moe");
      letters += letter;
    }
    return letters;
  }

  void read_pattern(const ConfigRow& row) {
    const Json value = take_or_fallback(row);
    if (row.meaning == Meaning::pattern) {
      pattern_ = pattern_text(row, value);
      const auto count = json_.find("num_hidden_layers");
      if (count != json_.end() && !count->is_null() && *count != pattern_.size())
        throw_usage("{}: num_hidden_layers = {} contradicts {} of {} layers", origin_,
                    count->dump(), row.theirs[0], pattern_.size());
    } else {
      if (!value.is_number_unsigned() || value == 0 || value > 100000)
        refuse(row.theirs[0], value, "1 to 100000");
      for (auto block = value.get<std::int64_t>(); block > 0; --block) pattern_ += family_.block;
    }
    config_.keys.emplace_back(row.ours, pattern_);
  }

  bool matters(const ConfigRow& row) const {
    return row.letters.empty() || pattern_.find_first_of(row.letters) != std::string::npos;
  }

  void read_row(const ConfigRow& row) {
    switch (row.meaning) {
      case Meaning::pattern:
      case Meaning::layers:
        return;
      case Meaning::ignored:
        for (const std::string_view key : row.theirs)
          if (json_.contains(std::string(key)) && used_.insert(std::string(key)).second)
            config_.ignored.emplace_back(key);
        return;
      case Meaning::fixed:
        if (const Json value = take_or_fallback(row); value != Json::parse(row.fallback))
          throw_usage("{}: {} = {}: not supported: {}; allowed: {}", origin_, row.theirs[0],
                      value.dump(), row.help, row.fallback);
        return;
      default:
        break;
    }
    const Json value =
        row.meaning == Meaning::ours_fixed ? Json::parse(row.fallback) : take_or_fallback(row);
    if (matters(row)) read_value(row, value);
  }

  void read_value(const ConfigRow& row, const Json& value) {
    try {
      if (row.meaning == Meaning::limits) {
        if (!value.is_array() || value.size() != 2) refuse(row.theirs[0], value, "two numbers");
        add("model.mamba_dt_min", detail::number_of(value[0]));
        add("model.mamba_dt_max", detail::number_of(value[1]));
      } else if (row.meaning == Meaning::rope) {
        read_rope(row, value);
      } else if (row.meaning == Meaning::opposite) {
        add(row.ours, !value.get<bool>());
      } else {
        read_same(row, value);
      }
    } catch (const Json::exception&) {
      refuse(row.theirs[0], value, type_name(find(row.ours)->fallback));
    }
  }

  void read_same(const ConfigRow& row, const Json& value) {
    const Value& like = find(row.ours)->fallback;
    if (std::holds_alternative<std::int64_t>(like)) {
      if (!value.is_number_integer()) refuse(row.theirs[0], value, "an integer");
      const auto number = value.get<std::int64_t>();
      if (row.meaning == Meaning::positive && number <= 0) refuse(row.theirs[0], value, "above 0");
      add(row.ours, number);
    } else if (std::holds_alternative<double>(like)) {
      add(row.ours, detail::number_of(value));
    } else if (std::holds_alternative<bool>(like)) {
      add(row.ours, value.get<bool>());
    } else {
      add(row.ours, word_of(row, value.get<std::string>()));
    }
  }

  std::string word_of(const ConfigRow& row, const std::string& theirs) {
    if (row.meaning == Meaning::ours_fixed) return theirs;
    const std::string meant = Json::parse(row.fallback).get<std::string>();
    for (const Word& word : words())
      if (word.theirs == theirs && theirs == meant) return std::string(word.ours);
    refuse(row.theirs[0], theirs, row.fallback);
  }

  void read_rope(const ConfigRow& row, const Json& value) {
    const auto has = [&](std::string_view key) {
      const auto at = json_.find(std::string(key));
      return at != json_.end() && !at->is_null();
    };
    const std::string_view name = has(row.theirs[0]) ? row.theirs[0] : row.theirs[1];
    if (!value.is_object()) refuse(name, value, "an object");
    const Json type = value.value("rope_type", value.value("type", Json("default")));
    if (type != "default" && type != "llama3")
      throw_usage("{}: {}: rope_type = {}: not supported; allowed: \"default\", \"llama3\"",
                  origin_, name, type.dump());
    for (const auto& [key, held] : value.items())
      if (key != "rope_theta" && key != "rope_type" && key != "type" &&
          (type == "default" || !is_scaling(key)))
        throw_usage("{}: {}: {} = {}: not supported with rope_type {}", origin_, name, key,
                    held.dump(), type.dump());
    Json theta = value.value("rope_theta", Json());
    used_.insert("rope_theta");
    if (has("rope_theta")) {
      if (has(name) && !theta.is_null() && theta != json_["rope_theta"])
        throw_usage("{}: rope_theta = {} contradicts {} = {}", origin_, json_["rope_theta"].dump(),
                    name, value.dump());
      theta = json_["rope_theta"];
    }
    if (theta.is_null()) theta = Json::parse(row.fallback)["rope_theta"];
    add(row.ours, detail::number_of(theta));
    if (type == "default") return add("model.rope_scaling_factor", 1.0);
    for (const Word& word : scaling_words()) {
      if (!value.contains(std::string(word.theirs)))
        throw_usage("{}: {}: rope_type \"llama3\" needs {}", origin_, name, word.theirs);
      add(word.ours, detail::number_of(value[std::string(word.theirs)]));
    }
  }

  static bool is_scaling(std::string_view key) {
    return std::any_of(scaling_words().begin(), scaling_words().end(),
                       [&](const Word& word) { return word.theirs == key; });
  }

  void read_dtype(const Json& value) {
    if (value == "bfloat16") config_.dtype = "bf16";
    if (value == "float32") config_.dtype = "fp32";
    if (value == "float64") config_.dtype = "fp64";
  }

  void add(std::string_view key, Value value) { config_.keys.emplace_back(key, std::move(value)); }

  const Json& json_;
  std::string_view origin_;
  const Family& family_;
  std::string pattern_;
  std::set<std::string> used_;
  Config config_;
};

}  // namespace

Config parse_config(std::string_view text, std::string_view origin) {
  const Json json = detail::parse_python_json(text, origin);
  return Reader(json, origin).read();
}

Config read_config(const std::string& folder) {
  const std::string path = (std::filesystem::path(folder) / kConfigFile).string();
  std::ifstream file(path, std::ios::binary);
  if (!file) throw_usage("{} cannot be read: a folder of a model has one", path);
  return parse_config(std::string(std::istreambuf_iterator<char>(file), {}), path);
}

std::string Config::deck_text() const {
  std::string text = "[model]\n";
  for (const auto& [key, value] : keys)
    text += fmt::format("{} = {}\n", find(key)->name(), to_toml(value));
  return text;
}

}  // namespace stowage::inputs::huggingface
