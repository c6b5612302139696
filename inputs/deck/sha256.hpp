#pragma once

#include <string>
#include <string_view>

namespace stowage::inputs {

/// SHA-256 of bytes as 64 hexadecimal digits (FIPS 180-4).
std::string sha256_hex(std::string_view bytes);

}  // namespace stowage::inputs
