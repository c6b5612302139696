#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace stowage::inputs {

/// What a key can hold. An integer written where a real is expected becomes one; so do lists.
using Value = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>,
                           std::vector<double>, std::vector<std::string>>;

/// "a boolean", "an integer", "a number", "a string", "a list of integers", …
std::string_view type_name(const Value& value);

/// The value as TOML text. A real has its shortest form that reads back to the same bits.
std::string to_toml(const Value& value);

/// Bytes from "64 GiB", "512M", "1k" or "100 B": K, M, G, T are powers of 1024, with or without
/// "iB" or "B". Empty if it is no size, or above 2^63 - 1.
std::optional<std::int64_t> parse_bytes(std::string_view text);

/// Is a text well-formed UTF-8 (RFC 3629)?
bool is_utf8(std::string_view text);

}  // namespace stowage::inputs
