#pragma once

#include <filesystem>
#include <optional>

#include "results/file_kind.hpp"
#include "results/file_lock.hpp"

namespace stowage::results {

/// A file under construction: written under `<final>.part`, renamed when it is complete, so that no
/// reader ever sees half a file under the final name, not even after a kill or a power cut. The
/// `.part` is locked meanwhile, so that two runs never write one output.
class PartFile {
 public:
  /// Makes the folder if needed and an empty `.part`. Throws Error(Exit::usage), naming path and
  /// reason, if that cannot be done, if `final_path` is not free (output_path.hpp), or if another
  /// run is writing it. What a dead run left in the `.part` is named on stderr; a result set of it
  /// that can be read is kept aside.
  PartFile(std::filesystem::path final_path, FileKind kind);
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  /// Removes the `.part` unless it was committed or kept.
  ~PartFile();

  const std::filesystem::path& part() const { return part_; }
  const std::filesystem::path& final_path() const { return final_; }

  /// Syncs the bytes to disk, keeps an older file aside (a checkpoint is replaced: the newer of one
  /// step counts), renames, and syncs the folder. The writer has closed the file.
  /// @return what the older file is named now; empty if there was none
  std::filesystem::path commit();

  /// Leaves the `.part` where it is, for a look at a run that failed.
  void keep() { owned_ = false; }

 private:
  void take();
  void clear_left_over();

  std::filesystem::path final_;
  std::filesystem::path part_;
  FileKind kind_;
  std::optional<LockedFile> lock_;
  bool owned_ = true;
};

/// Throws Error(Exit::usage) if `path` cannot be written; leaves nothing behind but folders. A run
/// asks this before its first step, of every file that it will write at its end.
void require_writable(const std::filesystem::path& path, FileKind kind);

/// Points the symbolic link `link` at `target` (relative to the link's folder) in one step, by way
/// of `<link>.part`, which must not be there.
void replace_link(const std::filesystem::path& link, const std::filesystem::path& target);

}  // namespace stowage::results
