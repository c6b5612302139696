#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace stowage::inputs {

/// A file's bytes, mapped for reading. Move-only.
///
/// A mapping whose file is made shorter kills the process that touches it (SIGBUS). So what is read
/// long after opening goes through `read_into`, which finds that out and says it.
class MappedFile {
 public:
  /// Throws a usage error (exit code 2) if the file is missing, unreadable, no plain file or empty.
  explicit MappedFile(std::string path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  const std::string& path() const { return path_; }
  const std::byte* data() const { return data_; }
  std::int64_t size() const { return size_; }

  /// The little-endian value at a byte offset. Throws a usage error if the file ends before it.
  template <class T>
  T read(std::int64_t offset) const {
    require(offset + static_cast<std::int64_t>(sizeof(T)));
    T value;
    copy(offset, sizeof(T), &value);
    return value;
  }

  /// Copies the bytes at a byte offset. Throws Error(Exit::runtime) if the file has become shorter
  /// since it was opened, or cannot be read any more. May be called from several threads.
  void read_into(std::int64_t offset, std::span<std::byte> to) const;

  /// Throws a usage error "truncated: needs … bytes, has …" if the file is shorter than `bytes`.
  void require(std::int64_t bytes) const;

 private:
  void copy(std::int64_t offset, std::size_t bytes, void* to) const;

  std::string path_;
  int file_ = -1;
  const std::byte* data_ = nullptr;
  std::int64_t size_ = 0;
};

}  // namespace stowage::inputs
