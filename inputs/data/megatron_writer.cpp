#include "inputs/data/megatron_writer.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "execution/error.hpp"
#include "inputs/data/formats.hpp"

namespace stowage::inputs {

namespace {

using detail::TokenWidth;
using execution::throw_usage;

/// The narrowest type that holds every token of a vocabulary.
TokenWidth width_for(std::int64_t vocab_size) {
  if (vocab_size <= 1 << 8) return TokenWidth::byte;
  return vocab_size <= 1 << 16 ? TokenWidth::uint16 : TokenWidth::int32;
}

/// Megatron's code of a token type.
std::uint8_t dtype_code(TokenWidth width) {
  if (width == TokenWidth::byte) return 1;
  return width == TokenWidth::uint16 ? 8 : 4;
}

void open(std::ofstream& file, const std::string& path) {
  file.open(path, std::ios::binary | std::ios::trunc);
  if (!file) throw_usage("'{}' cannot be written", path);
}

void require_written(const std::ofstream& file, const std::string& path) {
  if (!file)
    throw execution::Error(
        execution::Exit::runtime,
        fmt::format("'{}' could not be written whole: {}", path, std::strerror(errno)));
}

void close(std::ofstream& file, const std::string& path) {
  file.close();
  require_written(file, path);
}

/// The low bytes of each token, in the order of this machine.
template <class T>
void narrow(std::span<const std::int32_t> tokens, std::string& bytes) {
  bytes.resize(tokens.size() * sizeof(T));
  char* to = bytes.data();
  for (const std::int32_t all : tokens) {
    const T token = static_cast<T>(all);
    std::memcpy(to, &token, sizeof(T));
    to += sizeof(T);
  }
}

template <class T>
void put(std::ofstream& file, T value) {
  file.write(reinterpret_cast<const char*>(&value), sizeof(T));
}

}  // namespace

MegatronWriter::MegatronWriter(const std::string& bin_path, const std::string& index_path,
                               const std::string& mask_path, std::int64_t vocab_size)
    : bin_path_(bin_path),
      index_path_(index_path),
      mask_path_(mask_path),
      width_(width_for(vocab_size)),
      vocab_size_(vocab_size) {
  open(bin_, bin_path_);
  open(index_, index_path_);
  if (!mask_path_.empty()) open(mask_, mask_path_);
}

void MegatronWriter::add(std::span<const std::int32_t> tokens, std::span<const std::uint8_t> mask) {
  STOWAGE_ASSERT(!tokens.empty() && mask.size() == (mask_path_.empty() ? 0 : tokens.size()),
                 "a document of {} tokens with a mask of {}", tokens.size(), mask.size());
  if (std::ssize(tokens) > std::numeric_limits<std::int32_t>::max())
    throw_usage("a document of {} tokens: 2^31 - 1 is the most that the format holds",
                tokens.size());
  std::int32_t least = tokens.front(), most = least;
  for (const std::int32_t token : tokens) {  // a loop that compilers vectorise
    least = std::min(least, token);
    most = std::max(most, token);
  }
  if (least < 0 || most >= vocab_size_)
    throw_usage("token {} is not below the vocabulary of {}", least < 0 ? least : most,
                vocab_size_);
  if (width_ == TokenWidth::byte) narrow<std::uint8_t>(tokens, bytes_);
  if (width_ == TokenWidth::uint16) narrow<std::uint16_t>(tokens, bytes_);
  if (width_ == TokenWidth::int32) narrow<std::int32_t>(tokens, bytes_);
  bin_.write(bytes_.data(), std::ssize(bytes_));
  if (!mask_path_.empty())
    mask_.write(reinterpret_cast<const char*>(mask.data()), std::ssize(mask));
  require_written(bin_, bin_path_);
  require_written(mask_, mask_path_);
  lengths_.push_back(static_cast<std::int32_t>(tokens.size()));
  tokens_ += std::ssize(tokens);
}

void MegatronWriter::finish() {
  if (lengths_.empty()) throw_usage("'{}': no document with a token was given", bin_path_);
  index_.write(detail::kMegatronMagic.data(), std::ssize(detail::kMegatronMagic));
  put(index_, std::uint64_t{1});
  put(index_, dtype_code(width_));
  put(index_, static_cast<std::uint64_t>(lengths_.size()));
  put(index_, static_cast<std::uint64_t>(lengths_.size() + 1));
  for (const std::int32_t length : lengths_) put(index_, length);
  std::int64_t at = 0;
  for (const std::int32_t length : lengths_) {
    put(index_, at);
    at += length * static_cast<std::int64_t>(width_);
  }
  for (std::int64_t document = 0; document <= documents(); ++document) put(index_, document);
  close(bin_, bin_path_);
  if (!mask_path_.empty()) close(mask_, mask_path_);
  close(index_, index_path_);
}

}  // namespace stowage::inputs
