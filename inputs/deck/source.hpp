#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "inputs/deck/value.hpp"

namespace stowage::inputs::detail {

/// One `key = value` of a deck file, not yet looked up in the registry.
struct Assignment {
  std::string key;    ///< "section.name", or a bare name at the top of the file
  Value value;        ///< by its TOML type; an empty list is a list of integers
  std::string where;  ///< "file.toml:12"
};

/// A deck text taken apart.
struct Source {
  std::vector<std::string> includes;  ///< as written, in order
  std::string include_where;
  std::vector<Assignment> assignments;
  /// Sections without a key, and where each stands.
  std::vector<std::pair<std::string, std::string>> empty_sections;
};

/// Parses TOML text. Throws a usage error with place for a syntax error, a repeated key, a date, a
/// nested table, a list of mixed items, or a key of very many parts.
Source parse_toml(std::string_view text, std::string_view origin);

/// The value on the right of an override by TOML's rules; text that is no TOML value, such as a
/// bare word or a path, is a string.
Value parse_override_value(std::string_view text);

/// Makes a value fit the type of `like` where nothing is lost: integer to real, empty list to any
/// list, a size such as "64 GiB" to an integer if `bytes`. False if it does not fit.
bool coerce(Value& value, const Value& like, bool bytes);

}  // namespace stowage::inputs::detail
