#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "execution/dtype.hpp"

/// The safetensors format: 8 bytes little-endian N, N bytes of JSON, then the data that the JSON
/// describes, which begin at byte 8 + N and are tiled by the tensors without hole or overlap.
namespace stowage::inputs::huggingface {

/// The format's own limit on N: a longer header is an attack or a mistake.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

/// One tensor of a file; row-major, little-endian.
struct Entry {
  std::string name;
  std::string dtype;  ///< as the format writes it: "BF16", "F32", "F8_E4M3"
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0;  ///< of its bytes, from the start of the data
  std::int64_t end = 0;

  std::int64_t bytes() const { return end - begin; }
  std::string description() const;  ///< "BF16 (64, 256)"
};

/// The header of a file.
struct Header {
  std::vector<Entry> entries;                   ///< sorted by name
  std::map<std::string, std::string> metadata;  ///< "__metadata__"
  std::int64_t data_offset = 0;                 ///< of the data in the file: 8 + N

  /// The entry of this name, or nullptr.
  const Entry* find(std::string_view name) const;
};

/// Parses and proves a header: every entry whole, its bytes those of shape and dtype, names unique,
/// and the data tiled to the last byte.
/// @param file_bytes size of the file, of which `start` are the first 8 + N bytes or more
/// @throws Error (exit 2) that begins with `origin` and names the tensor
Header parse_header(std::span<const std::byte> start, std::int64_t file_bytes,
                    std::string_view origin);

/// N of a file that starts with these 8 bytes. @throws Error (exit 2) if it cannot be
std::uint64_t header_bytes(std::span<const std::byte> first8, std::int64_t file_bytes,
                           std::string_view origin);

/// The header of a file with these tensors, lying in this order: fills in begin and end.
/// The bytes before the data are padded with spaces to a multiple of 8.
/// @return the 8 + N bytes
std::string make_header(std::span<Entry> entries,
                        const std::map<std::string, std::string>& metadata);

/// Bits of an element of a dtype of the format; 0 for one that it does not have.
int bits_of(std::string_view dtype);

/// Our type of the format's, and back. @throws Error (exit 2) that begins with `origin` for a type
/// that we do not compute with
execution::Dtype dtype_of(const Entry& entry, std::string_view origin);
std::string_view name_of(execution::Dtype dtype);

}  // namespace stowage::inputs::huggingface
