#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "results/file_kind.hpp"
#include "results/file_lock.hpp"

namespace stowage::results {

/// A file of text that grows by lines, each complete and flushed as it happens, so that it can be
/// watched and outlives a kill. Locked meanwhile, so that two runs never write one file.
/// Default-constructed, it writes nothing.
class LineFile {
 public:
  LineFile() = default;

  /// Starts a file, an older one being kept aside, or continues one of its kind (`append`).
  /// Throws Error(Exit::usage) if the file cannot be written, is not free (output_path.hpp), or is
  /// being written by another run.
  LineFile(const std::filesystem::path& path, FileKind kind, bool append);

  /// Writes a line, or nothing if there is no file. What cannot be written, as on a full disk, is
  /// said once on stderr: work that goes on is worth more than its log.
  void write(std::string line);

  bool open() const { return file_ != nullptr; }
  /// True if it holds no line yet.
  bool empty() const;
  /// False once a line could not be written.
  bool complete() const { return !warned_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::optional<LockedFile> lock_;
  std::unique_ptr<std::FILE, Close> file_;
  std::filesystem::path path_;
  bool warned_ = false;
};

}  // namespace stowage::results
