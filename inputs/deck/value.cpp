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

bool is_utf8(std::string_view text) {
  static constexpr std::array<std::uint32_t, 4> kLeast = {0, 0x80, 0x800, 0x10000};
  for (std::size_t at = 0; at < text.size();) {
    const auto first = static_cast<unsigned char>(text[at++]);
    if (first < 0x80) continue;
    const std::size_t more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
    if (first < 0xC2 || first > 0xF4 || text.size() - at < more) return false;
    std::uint32_t code = first & (0x3FU >> more);
    for (std::size_t i = 0; i < more; ++i) {
      const auto next = static_cast<unsigned char>(text[at++]);
      if ((next & 0xC0U) != 0x80) return false;
      code = code << 6U | (next & 0x3FU);
    }
    const bool surrogate = code >= 0xD800 && code < 0xE000;
    if (code < kLeast[more] || code > 0x10FFFF || surrogate) return false;
  }
  return true;
}

}  // namespace stowage::inputs
