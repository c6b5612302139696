#include "inputs/huggingface/config_json.hpp"

#include <array>
#include <cmath>
#include <limits>

#include "execution/error.hpp"

namespace stowage::inputs::huggingface::detail {

using Json = nlohmann::ordered_json;

namespace {

constexpr std::array<std::string_view, 3> kWords = {"-Infinity", "Infinity", "NaN"};

/// Calls `visit(position)` for every place outside of strings; it returns how far to go on.
template <class Visit>
void outside_strings(std::string_view text, Visit&& visit) {
  bool inside = false;
  for (std::size_t i = 0; i < text.size();) {
    if (inside) {
      inside = text[i] != '"';
      i += text[i] == '\\' ? 2 : 1;
    } else {
      inside = text[i] == '"';
      i += visit(i);
    }
  }
}

std::string quoted_words(std::string_view text) {
  std::string out;
  std::size_t copied = 0;
  outside_strings(text, [&](std::size_t at) -> std::size_t {
    for (const std::string_view word : kWords) {
      if (!text.substr(at).starts_with(word)) continue;
      out.append(text.substr(copied, at - copied)).append(1, '"').append(word).append(1, '"');
      copied = at + word.size();
      return word.size();
    }
    return 1;
  });
  return out.append(text.substr(copied));
}

/// {"__float__": "Infinity"}, anywhere, is that word.
void unwrap_floats(Json& value) {
  if (value.is_object() && value.size() == 1 && value.contains("__float__")) {
    Json word = value["__float__"];
    value = std::move(word);
  }
  if (value.is_structured())
    for (Json& item : value) unwrap_floats(item);
}

}  // namespace

Json parse_python_json(std::string_view text, std::string_view origin) {
  try {
    Json value = Json::parse(quoted_words(text));
    unwrap_floats(value);
    return value;
  } catch (const Json::exception& error) {
    execution::throw_usage("{}: no JSON: {}", origin, error.what());
  }
}

std::string python_json_text(const Json& value) {
  std::string text = value.dump(2);
  for (const std::string_view word : kWords) {
    const std::string quoted = '"' + std::string(word) + '"';
    for (std::size_t at = 0; (at = text.find(quoted, at)) != std::string::npos;)
      text.replace(at, quoted.size(), word);
  }
  return text + "\n";
}

double number_of(const Json& value) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (value == "Infinity") return kInfinity;
  if (value == "-Infinity") return -kInfinity;
  if (value.is_string()) return value.get<double>();  // throws
  return value.is_boolean() ? Json(nullptr).get<double>() : value.get<double>();
}

Json json_number(double value) {
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

}  // namespace stowage::inputs::huggingface::detail
