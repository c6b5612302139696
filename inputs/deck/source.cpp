// The one place that sees toml++.
#include "inputs/deck/source.hpp"

#include <fmt/core.h>
// The library asserts that a key follows "[" in one place before the next checks it and reports it
// with its line: the report is wanted, in every build.
#define TOML_ASSERT(condition) static_assert(true)
#include <toml++/toml.h>

#include <algorithm>
#include <optional>

#include "execution/error.hpp"

namespace stowage::inputs::detail {

namespace {

using execution::throw_usage;

std::string place(std::string_view origin, const toml::source_region& source) {
  return fmt::format("{}:{}", origin, source.begin.line);
}

template <class T>
std::vector<T> items(const toml::array& array) {
  std::vector<T> list;
  for (const toml::node& node : array) list.push_back(*node.value<T>());
  return list;
}

/// The value of a node, or nothing for a kind that no key has.
std::optional<Value> value_of(const toml::node& node) {
  if (const auto* held = node.as_boolean()) return Value(held->get());
  if (const auto* held = node.as_integer()) return Value(held->get());
  if (const auto* held = node.as_floating_point()) return Value(held->get());
  if (const auto* held = node.as_string()) return Value(held->get());
  const auto* array = node.as_array();
  if (array == nullptr) return {};
  const auto all = [array](auto&& predicate) {
    return std::all_of(array->begin(), array->end(), predicate);
  };
  if (all([](const toml::node& item) { return item.is_integer(); })) {
    return Value(items<std::int64_t>(*array));
  }
  if (all([](const toml::node& item) { return item.is_number(); })) {
    return Value(items<double>(*array));
  }
  if (all([](const toml::node& item) { return item.is_string(); })) {
    return Value(items<std::string>(*array));
  }
  return {};
}

void add(Source& source, std::string key, const toml::node& node, std::string_view origin) {
  const std::string where = place(origin, node.source());
  std::optional<Value> value = value_of(node);
  if (!value) {
    throw_usage("{}: {} must be true or false, a number, a string, or a list of one kind of these",
                where, key);
  }
  source.assignments.push_back({std::move(key), std::move(*value), where});
}

void read_include(Source& source, const toml::node& node, std::string_view origin) {
  source.include_where = place(origin, node.source());
  const std::optional<Value> value = value_of(node);
  const auto* one = value ? std::get_if<std::string>(&*value) : nullptr;
  const auto* many = value ? std::get_if<std::vector<std::string>>(&*value) : nullptr;
  if (one == nullptr && many == nullptr) {
    throw_usage("{}: include must be a path or a list of paths", source.include_where);
  }
  source.includes = one != nullptr ? std::vector{*one} : *many;
}

/// The end of the string that begins at `at`, behind its closing quotes; where it is never closed,
/// the end of its line, or of the text if it may have several lines.
std::size_t behind_string(std::string_view text, std::size_t at) {
  const char quote = text[at];
  const std::string three(3, quote);
  const bool lines = text.substr(at).starts_with(three);
  for (at += lines ? 3 : 1; at < text.size(); ++at) {
    if (text[at] == '\\' && quote == '"') {
      ++at;  // what it escapes ends nothing
    } else if (!lines && (text[at] == quote || text[at] == '\n')) {
      return text[at] == quote ? at + 1 : at;
    } else if (lines && text.substr(at).starts_with(three)) {
      at += three.size();
      for (int more = 0; more < 2 && at < text.size() && text[at] == quote; ++more) ++at;
      return at;
    }
  }
  return text.size();
}

/// Keys have two parts. The library makes a table in a table of each part, by recursion, which many
/// thousands would end with the stack. Dots of strings and comments do not count.
void require_short_keys(std::string_view text, std::string_view origin) {
  constexpr int kMostDots = 100;
  int dots = 0;
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '"' || c == '\'') {
      at = behind_string(text, at);
      continue;
    }
    if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
      continue;
    }
    if (c == '\n' || c == '=' || c == ',') dots = 0;
    if (c == '.' && ++dots > kMostDots)
      throw_usage("{}:{}: a key has more than {} parts; keys are section.name", origin,
                  1 + std::ranges::count(text.substr(0, at), '\n'), kMostDots);
    ++at;
  }
}

}  // namespace

Source parse_toml(std::string_view text, std::string_view origin) {
  require_short_keys(text, origin);
  toml::table root;
  try {
    root = toml::parse(text, origin);
  } catch (const toml::parse_error& error) {
    throw_usage("{}: not TOML: {}", place(origin, error.source()), error.description());
  }
  Source source;
  for (const auto& [key, node] : root) {
    const std::string name(key.str());
    const toml::table* section = node.as_table();
    if (section == nullptr && name == "include") {
      read_include(source, node, origin);
    } else if (section == nullptr) {
      add(source, name, node, origin);
    } else if (section->empty()) {
      source.empty_sections.emplace_back(name, place(origin, node.source()));
    } else {
      for (const auto& [inner, value] : *section) {
        add(source, name + "." + std::string(inner.str()), value, origin);
      }
    }
  }
  // toml++ sorts a table by name; people expect the first mistake of the file to be reported.
  const auto line = [](const Assignment& a) {
    return std::stoll(a.where.substr(a.where.rfind(':') + 1));
  };
  std::ranges::stable_sort(source.assignments, {}, line);
  return source;
}

Value parse_override_value(std::string_view text) {
  try {
    const toml::table table = toml::parse("value = " + std::string(text));
    if (table.size() == 1) {
      if (std::optional<Value> value = value_of(*table.get("value"))) return *value;
    }
  } catch (const toml::parse_error&) {
    // A bare word or a path: a string as it stands.
  }
  return std::string(text);
}

bool coerce(Value& value, const Value& like, bool bytes) {
  if (value.index() == like.index()) return true;
  if (const auto* text = std::get_if<std::string>(&value); text != nullptr && bytes) {
    const std::optional<std::int64_t> size = parse_bytes(*text);
    if (size) value = *size;
    return size.has_value();
  }
  if (const auto* integer = std::get_if<std::int64_t>(&value);
      integer != nullptr && std::holds_alternative<double>(like)) {
    value = static_cast<double>(*integer);
    return true;
  }
  const auto* integers = std::get_if<std::vector<std::int64_t>>(&value);
  if (integers == nullptr) return false;
  if (std::holds_alternative<std::vector<double>>(like)) {
    std::vector<double> reals;
    for (const std::int64_t item : *integers) reals.push_back(static_cast<double>(item));
    value = std::move(reals);
    return true;
  }
  if (integers->empty() && std::holds_alternative<std::vector<std::string>>(like)) {
    value = std::vector<std::string>{};
    return true;
  }
  return false;
}

}  // namespace stowage::inputs::detail
