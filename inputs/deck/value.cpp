#include "inputs/deck/value.hpp"

#include <fmt/core.h>

#include <array>
#include <charconv>
#include <system_error>

namespace stowage::inputs {

namespace {

std::string text_of(bool value) { return value ? "true" : "false"; }
std::string text_of(std::int64_t value) { return fmt::format("{}", value); }

std::string text_of(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";  // n: inf, nan
  return text;
}

std::string text_of(const std::string& value) {
  std::string text = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      text += '\\';
      text += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      text += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      text += c;
    }
  }
  return text + '"';
}

template <class T>
std::string text_of(const std::vector<T>& items) {
  std::string text = "[";
  for (const T& item : items) {
    if (text.size() > 1) text += ", ";
    text += text_of(item);
  }
  return text + ']';
}

}  // namespace

std::string_view type_name(const Value& value) {
  static constexpr std::array<std::string_view, std::variant_size_v<Value>> kNames = {
      "true or false",      "an integer",        "a number",         "a string",
      "a list of integers", "a list of numbers", "a list of strings"};
  return kNames[value.index()];
}

std::string to_toml(const Value& value) {
  return std::visit([](const auto& held) { return text_of(held); }, value);
}

std::optional<std::int64_t> parse_bytes(std::string_view text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{}) return {};
  std::string_view suffix(rest, static_cast<std::size_t>(end - rest));
  while (suffix.starts_with(' ')) suffix.remove_prefix(1);
  if (!suffix.empty()) {
    const std::size_t power =
        std::string_view("KMGT").find(suffix.front() == 'k' ? 'K' : suffix.front());
    if (power != std::string_view::npos) {
      number *= static_cast<double>(std::int64_t{1024} << (10 * power));
      suffix.remove_prefix(1);
      if (suffix == "iB") suffix = "B";
    }
  }
  if (!suffix.empty() && suffix != "B") return {};
  if (!(number >= -0x1p63 && number < 0x1p63)) return {};
  return static_cast<std::int64_t>(number);
}

}  // namespace stowage::inputs
