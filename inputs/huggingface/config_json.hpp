#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace stowage::inputs::huggingface::detail {

/// JSON as Python writes it: Infinity, -Infinity and NaN are words outside of strings. They become
/// numbers. {"__float__": "Infinity"}, as transformers 5 writes it, stays the object that it is.
/// @throws Error (exit 2) that names `origin`
nlohmann::ordered_json parse_python_json(std::string_view text, std::string_view origin);

/// The text that Python reads: such numbers are words again.
/// @param indent spaces of a level; -1: all on one line
std::string python_json_text(const nlohmann::ordered_json& value, int indent);

/// A value for a message: on one line, and not long.
std::string shown(const nlohmann::ordered_json& value);

/// The same with every {"__float__": "Infinity"} as a number: values that say the same are equal.
nlohmann::ordered_json with_plain_numbers(nlohmann::ordered_json value);

/// A number in either form; nothing for NaN and for anything else.
std::optional<double> number_of(const nlohmann::ordered_json& value);

}  // namespace stowage::inputs::huggingface::detail
