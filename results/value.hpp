#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace stowage::results {

/// What an attribute, a deck key or a field of a JSON line can hold.
using Value = std::variant<bool, std::int64_t, double, std::string>;

/// A named value.
struct Field {
  std::string name;
  Value value;
};

using Fields = std::vector<Field>;

}  // namespace stowage::results
