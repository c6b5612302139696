#include "drivers/common/result_config.hpp"

#include <type_traits>
#include <variant>

namespace stowage::drivers {
namespace {

/// A scalar as it is, a list as TOML text.
results::Value attribute(const inputs::Value& value) {
  return std::visit(
      [&](const auto& held) -> results::Value {
        if constexpr (std::is_constructible_v<results::Value, decltype(held)>)
          return held;
        else
          return inputs::to_toml(value);
      },
      value);
}

}  // namespace

results::Fields config_fields(const inputs::Deck& deck) {
  results::Fields fields;
  for (const inputs::Deck::Row& row : deck.rows())
    fields.push_back({std::string(row.key), attribute(row.value)});
  return fields;
}

}  // namespace stowage::drivers
