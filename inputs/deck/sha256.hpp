#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace stowage::inputs {

/// SHA-256 (FIPS 180-4) of a stream of bytes; about 0.3 GB/s on one core.
class Sha256 {
 public:
  void update(std::span<const std::byte> bytes);
  std::string hex();  ///< ends the stream: 64 hexadecimal digits

 private:
  void compress(const std::byte* block);

  std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> block_{};
  std::uint64_t total_bytes_ = 0;
};

/// SHA-256 of bytes as 64 hexadecimal digits.
std::string sha256_hex(std::string_view bytes);

/// SHA-256 of a file. Throws Error(Exit::usage) if it cannot be read.
std::string sha256_of_file(const std::filesystem::path& path);

}  // namespace stowage::inputs
