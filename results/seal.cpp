#include "results/seal.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <optional>
#include <span>
#include <sstream>

#include "execution/error.hpp"
#include "inputs/deck/xxh64.hpp"
#include "results/checkpoint.hpp"

namespace stowage::results {
namespace {

using execution::throw_usage;
using inputs::Xxh64;

constexpr std::size_t kDigits = 16;       // of a digest, but a tensor's
constexpr std::int64_t kLeastHead = 512;  // of HDF5's user blocks
constexpr std::int64_t kMostHead = std::int64_t{1} << 30;
constexpr std::size_t kPiece = std::size_t{1} << 20;      // bytes read at once
constexpr std::size_t kLineBytes = 7 + 32 + 20 + 20 + 4;  // of a tensor but its name
constexpr std::size_t kOtherBytes = 256;                  // more than the other lines have

std::string first_line() { return fmt::format("{} {}\n", kCheckpointSchema, kCheckpointFormat); }
std::size_t digest_at() { return first_line().size() + std::strlen("seal "); }

void add(Xxh64& hash, std::string_view text) { hash.update(std::as_bytes(std::span(text))); }

/// The digest of a user block but for the place where this digest stands.
std::string digest_of_head(std::string_view head) {
  Xxh64 hash;
  add(hash, head.substr(0, digest_at()));
  add(hash, head.substr(digest_at() + kDigits));
  return hash.hex();
}

/// The digest of bytes [begin, end) of a file but for the tensors'; empty if it cannot be read.
std::optional<std::string> digest_of_structure(std::istream& file, const Seal& seal,
                                               std::int64_t end) {
  Xxh64 hash;
  std::string piece;
  std::int64_t at = seal.head_bytes;
  const auto add_until = [&](std::int64_t stop) {
    file.seekg(at);
    while (at < stop && file) {
      piece.resize(std::min(kPiece, static_cast<std::size_t>(stop - at)));
      file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
      add(hash, piece);
      at += static_cast<std::int64_t>(piece.size());
    }
  };
  for (const SealedTensor& tensor : seal.tensors) {
    add_until(tensor.offset);
    at = std::max(at, tensor.offset + tensor.bytes);
  }
  add_until(end);
  return file ? std::optional(hash.hex()) : std::nullopt;
}

/// Takes a seal's lines apart; false where a line is not as we write it.
class Lines {
 public:
  explicit Lines(const std::string& text) : in_(text) {}

  bool word(std::string_view expected) {
    std::string found;
    return in_ >> found && found == expected;
  }
  bool take(std::int64_t& number) { return static_cast<bool>(in_ >> number) && number >= 0; }
  bool take(std::string& text) { return static_cast<bool>(in_ >> text); }
  bool rest(std::string& text) {
    return in_.get() == ' ' && static_cast<bool>(std::getline(in_, text));
  }
  /// The next line's first word, or empty.
  std::string next() {
    std::string found;
    in_ >> found;
    return found;
  }

 private:
  std::istringstream in_;
};

struct Contents {
  Seal seal;
  std::int64_t file_bytes = 0;
  std::string structure;
};

std::optional<Contents> parse(const std::string& head) {
  Contents contents;
  Lines lines(head.substr(digest_at() + kDigits));
  if (!lines.word("head") || !lines.take(contents.seal.head_bytes)) return {};
  if (!lines.word("file") || !lines.take(contents.file_bytes)) return {};
  if (!lines.word("structure") || !lines.take(contents.structure)) return {};
  std::string what = lines.next();
  for (; what == "tensor"; what = lines.next()) {
    SealedTensor& tensor = contents.seal.tensors.emplace_back();
    const bool whole = lines.take(tensor.digest) && lines.take(tensor.offset) &&
                       lines.take(tensor.bytes) && lines.rest(tensor.name);
    if (!whole || tensor.bytes > contents.file_bytes - tensor.offset) return {};
  }
  if (what != "end") return {};
  return contents;
}

/// The size of the user block, from the line that says it; 0 if there is none.
std::int64_t head_bytes_in(std::string_view start) {
  const std::size_t at = digest_at() + kDigits + std::strlen("\nhead ");
  std::int64_t bytes = 0;
  if (start.size() > at) std::from_chars(start.data() + at, start.data() + start.size(), bytes);
  const bool possible = bytes >= kLeastHead && bytes <= kMostHead &&
                        std::has_single_bit(static_cast<std::uint64_t>(bytes));
  return possible ? bytes : 0;
}

/// The user block of a file of ours, with its digest checked.
std::string read_head(std::istream& file, const std::string& name) {
  std::string head(kLeastHead, '\0');
  file.read(head.data(), kLeastHead);
  head.resize(static_cast<std::size_t>(file.gcount()));
  const std::string schema = fmt::format("{} ", kCheckpointSchema);
  if (!head.starts_with(schema)) {
    const bool hdf5 = head.starts_with("\x89HDF");
    throw_usage("{}: not a {} file{}", name, kCheckpointSchema,
                hdf5 ? ", or one of format 1, which this version does not read" : "");
  }
  if (!head.starts_with(first_line()))
    throw_usage("{}: a checkpoint of format '{}'; this version reads {}", name,
                head.substr(schema.size(), head.find('\n') - schema.size()), kCheckpointFormat);
  if (head.size() < kLeastHead) throw_usage("{}: the checkpoint is truncated", name);
  const std::int64_t bytes = head_bytes_in(head);
  if (bytes == 0) throw_usage("{}: the checkpoint is damaged: in its seal", name);
  head.resize(static_cast<std::size_t>(bytes));
  file.read(head.data() + kLeastHead, bytes - kLeastHead);
  if (file.gcount() != bytes - kLeastHead) throw_usage("{}: the checkpoint is truncated", name);
  if (head.substr(digest_at(), kDigits) != digest_of_head(head))
    throw_usage("{}: the checkpoint is damaged: in its seal", name);
  return head;
}

}  // namespace

std::int64_t head_bytes_for(const std::vector<std::string>& names) {
  std::size_t bytes = kOtherBytes;
  for (const std::string& name : names) bytes += kLineBytes + name.size();
  return std::max(kLeastHead, static_cast<std::int64_t>(std::bit_ceil(bytes)));
}

void write_seal(const std::filesystem::path& path, Seal seal) {
  const auto fail = [&](std::string_view what) {
    throw execution::Error(
        execution::Exit::runtime,
        fmt::format("{} of {} failed: {}", what, path.string(), std::strerror(errno)));
  };
  std::ranges::sort(seal.tensors, {}, &SealedTensor::offset);
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  const auto file_bytes = static_cast<std::int64_t>(std::filesystem::file_size(path));
  const std::optional<std::string> structure = digest_of_structure(file, seal, file_bytes);
  if (!structure) fail("reading back");
  std::string head = first_line() + "seal " + std::string(kDigits, '0');
  head +=
      fmt::format("\nhead {}\nfile {}\nstructure {}\n", seal.head_bytes, file_bytes, *structure);
  for (const SealedTensor& tensor : seal.tensors)
    head += fmt::format("tensor {} {} {} {}\n", tensor.digest, tensor.offset, tensor.bytes,
                        tensor.name);
  head += "end\n";
  STOWAGE_ASSERT(static_cast<std::int64_t>(head.size()) <= seal.head_bytes,
                 "a seal of {} bytes for a user block of {}", head.size(), seal.head_bytes);
  head.resize(static_cast<std::size_t>(seal.head_bytes), '\0');
  head.replace(digest_at(), kDigits, digest_of_head(head));
  file.seekp(0);
  file.write(head.data(), static_cast<std::streamsize>(head.size()));
  file.close();
  if (!file) fail("writing the seal");
}

Seal read_seal(const std::filesystem::path& path) {
  const std::string name = path.string();
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) throw_usage("{}: no such file", name);
  if (!std::filesystem::is_regular_file(status)) throw_usage("{}: not a regular file", name);
  std::ifstream file(path, std::ios::binary);
  if (!file) throw_usage("{}: cannot be read: {}", name, std::strerror(errno));
  const std::string head = read_head(file, name);
  std::optional<Contents> contents = parse(head);
  if (!contents) throw_usage("{}: the checkpoint is damaged: in its seal", name);
  const auto bytes = static_cast<std::int64_t>(std::filesystem::file_size(path, error));
  if (bytes != contents->file_bytes)
    throw_usage("{}: the checkpoint is {}: it has {} bytes of {}", name,
                bytes < contents->file_bytes ? "truncated" : "damaged", bytes,
                contents->file_bytes);
  if (digest_of_structure(file, contents->seal, bytes) != contents->structure)
    throw_usage(
        "{}: the checkpoint is damaged: in its structure or its records (step, state, deck)", name);
  contents->seal.digest = head.substr(digest_at(), kDigits);
  return contents->seal;
}

}  // namespace stowage::results
