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
  return std::visit(
      [](const auto& held) -> Json {
        if constexpr (std::is_same_v<std::decay_t<decltype(held)>, double>)
          return detail::json_number(held);
        else
          return held;
      },
      value);
}

class Writer {
 public:
  Writer(const Family& family, const Deck& deck, std::string_view like)
      : family_(family),
        deck_(deck),
        pattern_(without_cuts(deck.get<std::string>("model.pattern"))),
        json_(like.empty() ? Json::object()
                           : detail::parse_python_json(like, "the other config.json")) {}

  std::string text() {
    json_["architectures"] = Json::array({std::string(family_.architecture)});
    json_["model_type"] = std::string(family_.model_type);
    for (const ConfigRow& row : family_.config) write(row);
    const std::string& dtype = deck_.get<std::string>("train.dtype");
    json_[json_.contains("torch_dtype") ? "torch_dtype" : "dtype"] =
        dtype == "bf16" ? "bfloat16" : (dtype == "fp64" ? "float64" : "float32");
    return detail::python_json_text(json_);
  }

 private:
  /// The name under which a row is written: the one that is there already, or the first.
  std::string name_of(const ConfigRow& row) const {
    for (const std::string_view name : row.theirs)
      if (json_.contains(std::string(name))) return std::string(name);
    return std::string(row.theirs[0]);
  }

  bool matters(const ConfigRow& row) const {
    return row.letters.empty() || pattern_.find_first_of(row.letters) != std::string::npos;
  }

  [[noreturn]] void refuse(std::string_view key, std::string_view allowed) const {
    throw_usage("{}: a model of the family {} cannot have it; allowed: {}", deck_.cite(key),
                family_.model_type, allowed);
  }

  void write(const ConfigRow& row) {
    if (row.meaning == Meaning::ignored || !matters(row)) return;
    switch (row.meaning) {
      case Meaning::pattern:
        return write_pattern(row);
      case Meaning::layers:
        json_[name_of(row)] = blocks_of(family_, pattern_, deck_.cite(row.ours));
        return;
      case Meaning::fixed:
        if (row.fallback != "null" || json_.contains(name_of(row)))
          json_[name_of(row)] = Json::parse(row.fallback);
        return;
      case Meaning::ours_fixed:
        if (to_json(deck_.value(row.ours)) != Json::parse(row.fallback))
          refuse(row.ours, row.fallback);
        return;
      case Meaning::limits:
        json_[name_of(row)] = {to_json(deck_.value("model.mamba_dt_min")),
                               to_json(deck_.value("model.mamba_dt_max"))};
        return;
      case Meaning::rope:
        return write_rope(row);
      case Meaning::opposite:
        json_[name_of(row)] = !deck_.get<bool>(row.ours);
        return;
      default:
        return write_same(row);
    }
  }

  void write_same(const ConfigRow& row) {
    const Value& value = deck_.value(row.ours);
    if (row.meaning == Meaning::positive && std::get<std::int64_t>(value) <= 0)
      refuse(row.ours, "above 0");
    json_[name_of(row)] = to_json(value);
    if (!std::holds_alternative<std::string>(value)) return;
    const std::string theirs = Json::parse(row.fallback).get<std::string>();
    const auto found = std::find_if(words().begin(), words().end(),
                                    [&](const Word& word) { return word.theirs == theirs; });
    if (found->ours != std::get<std::string>(value))
      refuse(row.ours, '"' + std::string(found->ours) + '"');
    json_[name_of(row)] = theirs;
  }

  /// As letters, which every version of the library reads, or as the other file has it.
  void write_pattern(const ConfigRow& row) {
    json_["num_hidden_layers"] = pattern_.size();
    bool written = false;
    for (const std::string_view name : row.theirs) {
      if (!json_.contains(std::string(name))) continue;
      json_[std::string(name)] = json_[std::string(name)].is_string() ? Json(pattern_) : words_of();
      written = true;
    }
    if (!written) json_[std::string(row.theirs.back())] = pattern_;
  }

  Json words_of() const {
    Json list = Json::array();
    for (const char letter : pattern_)
      list.push_back(letter == 'M'   ? "linear_attention"
                     : letter == '*' ? "full_attention"
                     : letter == '-' ? "mlp"
                                     : "moe");
    return list;
  }

  void write_rope(const ConfigRow& row) {
    const Json theta = to_json(deck_.value(row.ours));
    const bool scales = deck_.get<double>("model.rope_scaling_factor") != 1;
    Json scaling = Json::object({{"rope_type", scales ? "llama3" : "default"}});
    for (const Word& word : scaling_words())
      if (scales) scaling[std::string(word.theirs)] = to_json(deck_.value(word.ours));
    if (json_.contains("rope_theta")) {  // the older form
      json_["rope_theta"] = theta;
      if (scales || json_.contains("rope_scaling"))
        json_["rope_scaling"] = scales ? scaling : Json();
      return;
    }
    scaling["rope_theta"] = theta;
    json_[std::string(row.theirs[0])] = std::move(scaling);
  }

  const Family& family_;
  const Deck& deck_;
  std::string pattern_;
  Json json_;
};

}  // namespace

std::string config_text(const Family& family, const Deck& deck, std::string_view like) {
  const std::string& pattern = deck.get<std::string>("model.pattern");
  for (const char letter : without_cuts(pattern)) {
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

void require_same_model(const Config& config, const Deck& deck, std::string_view origin) {
  const Deck theirs = Deck::parse(config.deck_text() + "[data]\nsource = \"synthetic\"\n", origin);
  std::string differing;
  for (const auto& [key, value] : config.keys) {
    // How weights began, and in what order sums are made: weights fit whatever these are.
    if (key == "model.init_std" || key == "model.mamba_chunk_size") continue;
    const bool same = key == "model.pattern" ? without_cuts(theirs.get<std::string>(key)) ==
                                                   without_cuts(deck.get<std::string>(key))
                                             : theirs.value(key) == deck.value(key);
    if (!same)
      differing +=
          fmt::format("\n  {}, the folder has {}", deck.cite(key), to_toml(theirs.value(key)));
  }
  if (!differing.empty())
    throw_usage(
        "{} describes another model than the deck; change it back, or say "
        "checkpoint.allow_changes=true:{}",
        origin, differing);
}

ModelSizes sizes_of(const Deck& deck) {
  const std::int64_t head_dim = deck.get<std::int64_t>("model.head_dim");
  return {.pattern = deck.get<std::string>("model.pattern"),
          .query_width = deck.get<std::int64_t>("model.num_attention_heads") * head_dim,
          .key_width = deck.get<std::int64_t>("model.num_query_groups") * head_dim};
}

}  // namespace stowage::inputs::huggingface
