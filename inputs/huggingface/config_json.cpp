#include "inputs/huggingface/config_json.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "execution/error.hpp"
#include "inputs/huggingface/json_limits.hpp"

namespace stowage::inputs::huggingface::detail {

using Json = nlohmann::ordered_json;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct NumberWord {
  std::string_view text;
  double value;
};
constexpr std::array<NumberWord, 3> kWords = {{{"-Infinity", -kInfinity},
                                               {"Infinity", kInfinity},
                                               {"NaN", std::numeric_limits<double>::quiet_NaN()}}};

const NumberWord* word_at(std::string_view text) {
  const auto found = std::find_if(kWords.begin(), kWords.end(), [&](const NumberWord& word) {
    return text.starts_with(word.text);
  });
  return found == kWords.end() ? nullptr : &*found;
}

/// JSON in which some strings stand for words, and which ones: places among all its strings, keys
/// counted, in the order of the text.
struct QuotedWords {
  std::string text;
  std::vector<std::size_t> words;

  bool is_word(std::size_t place) const {
    return std::binary_search(words.begin(), words.end(), place);
  }
};

QuotedWords quoted(std::string_view text) {
  QuotedWords out;
  std::size_t strings = 0;
  visit_strings(text, [&](std::string_view piece, bool is_string) {
    if (is_string) {
      ++strings;
      out.text += piece;
      return;
    }
    while (!piece.empty()) {
      const NumberWord* word = word_at(piece);
      if (word != nullptr) {
        out.words.push_back(strings++);
        out.text.append(1, '"').append(word->text).append(1, '"');
      } else {
        out.text += piece[0];
      }
      piece.remove_prefix(word == nullptr ? 1 : word->text.size());
    }
  });
  return out;
}

/// Numbers without a form in JSON become strings; `out.words` gets their places.
void quote_numbers(Json& value, std::size_t& strings, QuotedWords& out) {
  if (value.is_object()) {
    for (auto& [key, item] : value.items()) {
      ++strings;
      quote_numbers(item, strings, out);
    }
  } else if (value.is_array()) {
    for (Json& item : value) quote_numbers(item, strings, out);
  } else if (value.is_string()) {
    ++strings;
  } else if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    const auto number = value.get<double>();
    out.words.push_back(strings++);
    value = std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity";
  }
}

/// The number that {"__float__": "Infinity"} is.
std::optional<double> wrapped_number(const Json& value) {
  if (!value.is_object() || value.size() != 1 || !value.contains("__float__")) return {};
  const Json& text = value["__float__"];
  for (const NumberWord& word : kWords)
    if (text == word.text) return word.value;
  return {};
}

}  // namespace

Json parse_python_json(std::string_view text, std::string_view origin) {
  require_shallow(text, origin, kMaxConfigValues);
  const QuotedWords source = quoted(text);
  std::size_t strings = 0;
  const auto restore = [&](int /*depth*/, Json::parse_event_t event, Json& value) {
    const bool is_key = event == Json::parse_event_t::key;
    if (!is_key && (event != Json::parse_event_t::value || !value.is_string())) return true;
    if (!source.is_word(strings++)) return true;
    const auto word = value.get<std::string>();
    if (is_key) execution::throw_usage("{}: no JSON: {} is no name of a value", origin, word);
    value = word_at(word)->value;
    return true;
  };
  try {
    return Json::parse(source.text, restore);
  } catch (const Json::exception& error) {
    execution::throw_usage("{}: no JSON: {}", origin, shown_text(error.what()));
  }
}

std::string python_json_text(const Json& value, int indent) {
  QuotedWords source;
  Json quoted = value;
  std::size_t strings = 0;
  quote_numbers(quoted, strings, source);
  source.text = quoted.dump(indent, ' ', false, Json::error_handler_t::replace);
  std::string text;
  strings = 0;
  visit_strings(source.text, [&](std::string_view piece, bool is_string) {
    if (is_string && source.is_word(strings++)) piece = piece.substr(1, piece.size() - 2);
    text += piece;
  });
  return text;
}

std::string shown(const Json& value) { return shown_text(python_json_text(value, -1)); }

Json with_plain_numbers(Json value) {
  if (const auto number = wrapped_number(value)) return *number;
  if (value.is_structured())
    for (Json& item : value) item = with_plain_numbers(std::move(item));
  return value;
}

std::optional<double> number_of(const Json& value) {
  const std::optional<double> number =
      value.is_number() ? std::optional<double>(value.get<double>()) : wrapped_number(value);
  return number && std::isnan(*number) ? std::nullopt : number;
}

}  // namespace stowage::inputs::huggingface::detail
