#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

namespace stowage::results {

/// A file that one process has to itself: flock(2), which the kernel gives back when the process
/// ends, however it ends. Move-only. The file stays when the lock goes.
class LockedFile {
 public:
  /// Opens `path` for reading and writing, makes it if it is missing, and takes the lock. Empty if
  /// another process has it. A file system without locks is said on stderr and counts as free.
  /// Throws std::system_error if the file cannot be opened; a symbolic link is not followed.
  static std::optional<LockedFile> try_open(const std::filesystem::path& path);

  LockedFile(LockedFile&& other) noexcept;
  LockedFile& operator=(LockedFile&& other) noexcept;
  ~LockedFile();

  int descriptor() const { return descriptor_; }

  /// Makes this all that the file holds, on the disk. Throws std::system_error.
  void write(std::string_view text) const;

  /// Is it still this file that the path names?
  bool is_at(const std::filesystem::path& path) const;

 private:
  explicit LockedFile(int descriptor) : descriptor_(descriptor) {}

  int descriptor_ = -1;
};

}  // namespace stowage::results
