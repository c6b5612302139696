#include "inputs/data/token_file.hpp"

#include <algorithm>
#include <vector>

#include "execution/error.hpp"

namespace stowage::inputs::detail {

namespace {

/// Widens `out.size()` tokens and returns the largest as unsigned, so that -1 is above all others.
template <class T>
std::uint32_t widen(const MappedFile& file, std::int64_t offset, std::span<std::int32_t> out) {
  std::vector<T> tokens(out.size());
  file.read_into(offset, std::as_writable_bytes(std::span(tokens)));
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<std::int32_t>(tokens[i]);
    largest = std::max(largest, static_cast<std::uint32_t>(tokens[i]));
  }
  return largest;
}

}  // namespace

TokenArray::TokenArray(const MappedFile& file, std::int64_t offset, TokenWidth width,
                       std::int64_t vocab_size, TokenSign sign)
    : file_(&file), offset_(offset), width_(width), vocab_size_(vocab_size), sign_(sign) {}

void TokenArray::read(std::int64_t first, std::span<std::int32_t> out) const {
  const std::int64_t begin = offset_ + first * static_cast<std::int64_t>(width_);
  std::uint32_t largest = 0;
  switch (width_) {
    case TokenWidth::byte:
      largest = widen<std::uint8_t>(*file_, begin, out);
      break;
    case TokenWidth::uint16:
      largest = widen<std::uint16_t>(*file_, begin, out);
      break;
    case TokenWidth::int32:
      largest = widen<std::int32_t>(*file_, begin, out);
      break;
  }
  if (largest >= vocab_size_) throw_bad_token(first, out);
}

void TokenArray::check(std::int64_t count) const {
  std::vector<std::int32_t> part(1 << 16);
  const auto step = static_cast<std::int64_t>(part.size());
  for (std::int64_t first = 0; first < count; first += step) {
    read(first, std::span(part).first(static_cast<std::size_t>(std::min(step, count - first))));
  }
}

void TokenArray::throw_bad_token(std::int64_t first, std::span<const std::int32_t> read) const {
  const auto bad = std::ranges::find_if(
      read, [this](std::int32_t token) { return token < 0 || token >= vocab_size_; });
  const std::int64_t index = first + (bad - read.begin());
  const std::int64_t shown =
      sign_ == TokenSign::is_signed ? *bad : std::int64_t{static_cast<std::uint32_t>(*bad)};
  execution::throw_usage(
      "data file '{}': token {} at byte offset {} is not below model.vocab_size = {}",
      file_->path(), shown, offset_ + index * static_cast<std::int64_t>(width_), vocab_size_);
}

}  // namespace stowage::inputs::detail
