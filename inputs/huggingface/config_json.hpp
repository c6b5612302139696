#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace stowage::inputs::huggingface::detail {

/// JSON as Python writes it: Infinity, -Infinity and NaN are words outside of strings. They become
/// the strings "Infinity", "-Infinity" and "NaN", as does {"__float__": "Infinity"}.
/// @throws Error (exit 2) that names `origin`
nlohmann::ordered_json parse_python_json(std::string_view text, std::string_view origin);

/// The text that Python reads: such strings are words again.
std::string python_json_text(const nlohmann::ordered_json& value);

/// A number, or one of the words. @throws nlohmann's error for anything else
double number_of(const nlohmann::ordered_json& value);
nlohmann::ordered_json json_number(double value);

}  // namespace stowage::inputs::huggingface::detail
