#include "inputs/data/json_line.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

namespace stowage::inputs {
namespace {

using nlohmann::json;

/// The line with {} in the room of each NaN and Infinity outside of strings: columns stay.
std::string without_constants(std::string_view line) {
  constexpr std::array<std::string_view, 3> kConstants = {"-Infinity", "Infinity", "NaN"};
  std::string text(line);
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') in_string = !in_string;
    if (text[i] == '\\') ++i;
    if (in_string || i >= text.size()) continue;
    for (const std::string_view constant : kConstants) {
      if (line.substr(i, constant.size()) != constant) continue;
      text.replace(i, constant.size(), constant.size(), ' ');
      text[i] = '{';
      i += constant.size() - 1;
      text[i] = '}';
    }
  }
  return text;
}

/// "column 14: invalid literal" of the library's "[...] parse error at line 1, column 14: syntax
/// error while parsing value - invalid literal; last read: '...'", which quotes the line; of a
/// number that no double holds "number overflow parsing '1e400'".
std::string reason(const json::exception& error) {
  std::string_view text = error.what();
  text = text.substr(0, text.find("; last read"));
  const std::size_t dash = text.find(" - "), colon = text.rfind(": ");
  if (dash != std::string_view::npos)
    text.remove_prefix(dash + 3);
  else if (colon != std::string_view::npos)
    text.remove_prefix(colon + 2);
  else
    text.remove_prefix(std::min(text.find("] ") + 2, text.size()));
  const auto* placed = dynamic_cast<const json::parse_error*>(&error);
  return placed == nullptr ? std::string(text) : fmt::format("column {}: {}", placed->byte, text);
}

}  // namespace

json parse_json_line(std::string_view line, std::string* why) {
  json value = json::parse(line, nullptr, false);
  if (!value.is_discarded()) return value;
  try {
    return json::parse(without_constants(line));
  } catch (const json::exception& error) {
    if (why != nullptr) *why = reason(error);
    return value;
  }
}

}  // namespace stowage::inputs
