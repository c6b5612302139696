// From the keys of a deck to config.json.
#include <algorithm>

#include "execution/error.hpp"
#include "inputs/huggingface/config.hpp"
#include "inputs/huggingface/config_json.hpp"

namespace stowage::inputs::huggingface {

using execution::throw_usage;
using Json = nlohmann::ordered_json;

namespace {

Json to_json(const Value& value) {
  return std::visit([](const auto& held) { return Json(held); }, value);
}

/// How many blocks predict further tokens: all depths may have one.
std::int64_t further_blocks(const Deck& deck) {
  const auto depths = deck.get<std::int64_t>("model.mtp_num_layers");
  return deck.get<bool>("model.mtp_use_repeated_layer") ? std::min<std::int64_t>(depths, 1)
                                                        : depths;
}

/// Whether a key decides what a model of this pattern computes.
bool is_of_model(const Deck::Row& row, std::string_view pattern) {
  const std::span<const std::string_view> others = training_keys();
  return row.parameter.section() == "model" && std::ranges::find(others, row.key) == others.end() &&
         (row.parameter.letter.empty() || pattern.find(row.parameter.letter) != pattern.npos);
}

class Writer {
 public:
  Writer(const Family& family, const Deck& deck, std::string_view like)
      : family_(family),
        deck_(deck),
        pattern_(without_cuts(deck.get<std::string>("model.pattern"))),
        further_(further_blocks(deck) > 0 ? deck.get<std::string>("model.mtp_pattern") : ""),
        json_(like.empty() ? Json::object()
                           : detail::parse_python_json(like, "the other config.json")),
        is_new_(like.empty()) {}

  std::string text() {
    put("architectures", Json::array({std::string(family_.architecture)}));
    put("model_type", std::string(family_.model_type));
    for (const ConfigRow& row : family_.config) write(row);
    require_defaults();
    const std::string& dtype = deck_.get<std::string>("train.dtype");
    const auto found = std::ranges::find(dtype_words(), dtype, &Word::ours);
    if (found == dtype_words().end())
      throw_usage("{}: has no word there", deck_.cite("train.dtype"));
    const std::string word(found->theirs);
    if (json_.contains("torch_dtype")) put("torch_dtype", word);
    if (json_.contains("dtype") || !json_.contains("torch_dtype")) put("dtype", word);
    return detail::python_json_text(json_, 2) + "\n";
  }

 private:
  /// A value that says the same already stays as it is spelled.
  void put(const std::string& name, const Json& value) {
    Json& held = json_[name];
    if (detail::with_plain_numbers(held) != value) held = value;
  }

  /// The name under which a row is written: the one that is there already, or the first.
  std::string name_of(const ConfigRow& row) const {
    for (const std::string_view name : row.theirs)
      if (json_.contains(std::string(name))) return std::string(name);
    return std::string(row.theirs[0]);
  }

  /// Of all layers.
  std::string letters() const { return pattern_ + further_; }

  bool matters(const ConfigRow& row) const {
    return row.letters.empty() || letters().find_first_of(row.letters) != std::string::npos;
  }

  [[noreturn]] void refuse(std::string_view key, std::string_view allowed) const {
    throw_usage("{}: a model of the family {} cannot have it; allowed: {}", deck_.cite(key),
                family_.model_type, allowed);
  }

  void write(const ConfigRow& row) {
    if (!matters(row)) return;
    switch (row.meaning) {
      case Meaning::pattern:
        return write_pattern(row);
      case Meaning::words:
        if (json_.contains(name_of(row)) && json_[name_of(row)].is_array())
          put(name_of(row), words_of(pattern_));
        return;
      case Meaning::further:
        if (json_.contains(name_of(row)) || !further_.empty())
          put(name_of(row), further_blocks(deck_));
        return;
      case Meaning::further_pattern:
        return write_further_pattern(row);
      case Meaning::layers:
        return put(name_of(row), blocks_of(family_, pattern_, deck_.cite(row.ours)));
      case Meaning::fixed:  // where another file leaves it out, the fallback counts
        if (json_.contains(name_of(row)) || (is_new_ && row.fallback != "null"))
          put(name_of(row), Json::parse(row.fallback));
        return;
      case Meaning::ours_fixed:
        if (to_json(deck_.value(row.ours)) != Json::parse(row.fallback))
          refuse(row.ours, row.fallback);
        return;
      case Meaning::limits:
        return put(name_of(row), {to_json(deck_.value("model.mamba_dt_min")),
                                  to_json(deck_.value("model.mamba_dt_max"))});
      case Meaning::rope:
        return write_rope(row);
      case Meaning::opposite:
        return put(name_of(row), !deck_.get<bool>(row.ours));
      case Meaning::same:
      case Meaning::positive:
        return write_same(row);
      case Meaning::or_null:
        return write_or_null(row);
      case Meaning::period:
      case Meaning::rotary_part:  // with the pattern, and with the rope
      case Meaning::ignored:
        return;
    }
  }

  /// Of the keys that the family does not name.
  void require_defaults() const {
    std::vector<std::string_view> named;
    for (const ConfigRow& row : family_.config)
      for (const std::string_view key : keys_of(row)) named.push_back(key);
    for (const Deck::Row& row : deck_.rows())
      if (is_of_model(row, letters()) && std::ranges::find(named, row.key) == named.end())
        require_default(row);
  }

  void require_default(const Deck::Row& row) const {
    Value value = row.parameter.fallback;
    if (row.parameter.derived) value = row.parameter.derived(deck_);
    if (row.value != value) refuse(row.key, to_toml(value));
  }

  const ConfigRow* row_of(Meaning meaning) const {
    const auto row = std::ranges::find(family_.config, meaning, &ConfigRow::meaning);
    return row == family_.config.end() ? nullptr : &*row;
  }

  void write_same(const ConfigRow& row) {
    const Value& value = deck_.value(row.ours);
    if (row.meaning == Meaning::positive && std::get<std::int64_t>(value) <= 0)
      refuse(row.ours, "above 0");
    if (!std::holds_alternative<std::string>(value)) return put(name_of(row), to_json(value));
    const std::string theirs = Json::parse(row.fallback).get<std::string>();
    const auto found = std::find_if(words().begin(), words().end(),
                                    [&](const Word& word) { return word.theirs == theirs; });
    if (found->ours != std::get<std::string>(value))
      refuse(row.ours, '"' + std::string(found->ours) + '"');
    put(name_of(row), theirs);
  }

  void write_or_null(const ConfigRow& row) {
    const Value& value = deck_.value(row.ours);
    if (std::get<std::int64_t>(value) > 0)
      put(name_of(row), to_json(value));
    else if (json_.contains(name_of(row)))
      put(name_of(row), Json());
  }

  /// As letters, which every version of the library reads, or as the other file has it.
  void write_pattern(const ConfigRow& row) {
    const std::size_t letters = family_.letters(), layers = pattern_.size() / letters;
    if (json_.contains("num_hidden_layers") || is_new_) put("num_hidden_layers", layers);
    bool written = has_period(layers);
    for (const std::string_view name : row.theirs) {
      if (!json_.contains(std::string(name))) continue;
      put(std::string(name),
          json_[std::string(name)].is_string() ? Json(pattern_) : words_of(pattern_));
      written = true;
    }
    if (!written)
      put(std::string(row.theirs.back()), letters > 1 ? words_of(pattern_) : Json(pattern_));
  }

  /// True if the other file says the pattern by its period, and that still holds.
  bool has_period(std::size_t layers) const {
    const ConfigRow* period = row_of(Meaning::period);
    if (period == nullptr) return false;
    const auto held = json_.find(std::string(period->theirs[0]));
    return held != json_.end() && held->is_number_unsigned() && *held > 0 &&
           periodic_pattern(family_, static_cast<std::int64_t>(layers),
                            held->get<std::int64_t>()) == pattern_;
  }

  void write_further_pattern(const ConfigRow& row) {
    if (further_.empty()) return;
    const std::string name = name_of(row);
    put(name,
        json_.contains(name) && json_[name].is_string() ? Json(further_) : words_of(further_));
  }

  /// "M, *, -, E": what of a pattern has a word.
  std::string words_text() const {
    std::string all;
    for (const Word& one : family_.words) all += (all.empty() ? "" : ", ") + std::string(one.ours);
    return all;
  }

  /// A pattern in words of the family.
  Json words_of(std::string_view pattern) const {
    Json list = Json::array();
    for (std::size_t at = 0; at < pattern.size();) {
      const auto word = std::ranges::find_if(
          family_.words, [&](const Word& one) { return pattern.substr(at).starts_with(one.ours); });
      if (word == family_.words.end())
        throw_usage("{}: the family {} has no word for '{}' at layer {}; it has {}",
                    deck_.cite("model.pattern"), family_.model_type, pattern[at], at + 1,
                    words_text());
      list.push_back(word->theirs);
      at += word->ours.size();
    }
    return list;
  }

  void write_rope(const ConfigRow& row) {
    const Json theta = to_json(deck_.value(row.ours));
    const bool scales = deck_.get<double>("model.rope_scaling_factor") != 1;
    Json scaling = Json::object({{"rope_type", scales ? "llama3" : "default"}});
    for (const Word& word : scaling_words())
      if (scales) scaling[std::string(word.theirs)] = to_json(deck_.value(word.ours));
    const ConfigRow* part = row_of(Meaning::rotary_part);
    const std::string part_name(part ? part->theirs[0] : "");
    const Json part_value = part ? to_json(deck_.value(part->ours)) : Json();
    const bool older = json_.contains("rope_theta");
    if (part && (older || json_.contains(part_name))) put(part_name, part_value);
    if (older) {
      put("rope_theta", theta);
      if (scales || json_.contains("rope_scaling")) put("rope_scaling", scales ? scaling : Json());
      return;
    }
    scaling["rope_theta"] = theta;
    if (part && !json_.contains(part_name)) scaling[part_name] = part_value;
    const Json held = json_.value(std::string(row.theirs[0]), Json());
    for (const auto& [key, value] : held.items())
      if (part && key.starts_with("mrope_")) scaling[key] = value;
    put(std::string(row.theirs[0]), scaling);
  }

  const Family& family_;
  const Deck& deck_;
  std::string pattern_;
  std::string further_;  ///< the same of a block that predicts further tokens; empty: none
  Json json_;
  bool is_new_;  ///< there is no other file
};

}  // namespace

std::string config_text(const Family& family, const Deck& deck, std::string_view like) {
  const std::string letters =
      deck.get<std::string>("model.pattern") + deck.get<std::string>("model.mtp_pattern");
  for (const char letter : without_cuts(letters)) {
    const bool known = std::any_of(
        family.names.begin(), family.names.end(),
        [&](const NameRow& row) { return row.letters.find(letter) != std::string_view::npos; });
    if (!known)
      throw_usage("{}: the family {} has no layer '{}'", deck.cite("model.pattern"),
                  family.model_type, letter);
  }
  return Writer(family, deck, like).text();
}

const Family& family_of(const Deck& deck) {
  std::string reasons;
  for (const Family* family : families()) {
    try {
      (void)config_text(*family, deck, {});
      return *family;
    } catch (const execution::Error& error) {
      reasons += fmt::format("\n  {}", error.what());
    }
  }
  throw_usage("no family of published models has this model:{}", reasons);
}

std::vector<std::string> other_than_model(const Config& config, const Deck& deck,
                                          std::string_view origin) {
  const Deck theirs = Deck::parse(config.deck_text() + "[data]\nsource = \"synthetic\"\n", origin,
                                  {}, config.places);
  std::vector<std::string> differing;
  const std::string pattern = without_cuts(theirs.get<std::string>("model.pattern"));
  const std::string letters = pattern + theirs.get<std::string>("model.mtp_pattern");
  const auto is_fixed = [&](std::string_view key) {
    return std::ranges::any_of(config.family->config, [&](const ConfigRow& row) {
      return row.meaning == Meaning::ours_fixed && row.ours == key;
    });
  };
  for (const Deck::Row& row : theirs.rows()) {
    if (!is_of_model(row, letters) && !is_fixed(row.key)) continue;
    // Depths that have one block have it in files as one.
    if (row.key == "model.mtp_use_repeated_layer") continue;
    const bool same =
        row.key == "model.pattern" ? pattern == without_cuts(deck.get<std::string>(row.key))
        : row.key == "model.mtp_num_layers" ? further_blocks(theirs) == further_blocks(deck)
                                            : row.value == deck.value(row.key);
    if (!same)
      differing.push_back(
          fmt::format("{}, the folder has {}", deck.cite(row.key), to_toml(row.value)));
  }
  return differing;
}

ModelSizes sizes_of(const Deck& deck) {
  const std::int64_t head_dim = deck.get<std::int64_t>("model.head_dim");
  const auto delta = [&](std::string_view key) {
    return deck.get<std::int64_t>(fmt::format("model.delta_{}", key));
  };
  return {.pattern = deck.get<std::string>("model.pattern"),
          .further_pattern = deck.get<std::string>("model.mtp_pattern"),
          .query_width = deck.get<std::int64_t>("model.num_attention_heads") * head_dim,
          .key_width = deck.get<std::int64_t>("model.num_query_groups") * head_dim,
          .head_dim = head_dim,
          .delta = {delta("num_key_heads"), delta("num_value_heads"), delta("key_head_dim"),
                    delta("value_head_dim")}};
}

}  // namespace stowage::inputs::huggingface
