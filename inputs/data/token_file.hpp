#pragma once

#include <cstdint>
#include <span>

#include "inputs/data/mapped_file.hpp"

namespace stowage::inputs::detail {

/// How a token is stored.
enum class TokenWidth : std::uint8_t { byte = 1, uint16 = 2, int32 = 4 };
/// How a token of four bytes that is in no vocabulary is shown.
enum class TokenSign : std::uint8_t { is_signed, is_unsigned };

/// Tokens stored one after the other in a mapped file.
class TokenArray {
 public:
  TokenArray(const MappedFile& file, std::int64_t offset, TokenWidth width, std::int64_t vocab_size,
             TokenSign sign = TokenSign::is_signed);

  /// Copies tokens [first, first + out.size()) as int32. Throws a usage error that names file,
  /// byte offset and token if one is not in [0, vocab_size).
  void read(std::int64_t first, std::span<std::int32_t> out) const;

  /// Reads tokens [0, count) only to check them.
  void check(std::int64_t count) const;

 private:
  [[noreturn]] void throw_bad_token(std::int64_t first, std::span<const std::int32_t> read) const;

  const MappedFile* file_;
  std::int64_t offset_;  // of token 0, in bytes
  TokenWidth width_;
  std::int64_t vocab_size_;
  TokenSign sign_;
};

/// Files of at most so many tokens are checked whole when opened: a fraction of a second.
inline constexpr std::int64_t kCheckedTokens = std::int64_t{1} << 26;

}  // namespace stowage::inputs::detail
