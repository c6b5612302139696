#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace stowage::inputs {

/// What a line of JSON lines holds.
///
/// NaN, Infinity and -Infinity, which are no JSON but which Python's json writes, are read as empty
/// objects: a value beside "text" may be one, a text or a token may not.
/// @param why if given, and the line cannot be read: the byte at which that was noticed and the
///        reason, "column 14: invalid literal"
/// @return a discarded value if the line cannot be read
nlohmann::json parse_json_line(std::string_view line, std::string* why = nullptr);

}  // namespace stowage::inputs
