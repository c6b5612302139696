#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "inputs/huggingface/safetensors_file.hpp"

namespace stowage::run {

/// The path of a folder that can be made: "folder" of "folder/".
/// @throws Error (exit 2) if it is empty, or something is there, even a link that leads nowhere
std::filesystem::path new_folder(const std::filesystem::path& given);

/// A Hugging Face folder under construction: written as `<path>.part`, renamed when it is complete.
class FolderWriter {
 public:
  /// @param entries name, dtype and shape, in the order in which they are divided into shards
  /// @param keeps what has that name gets another, `<path>.older_1`, when this one is complete; a
  /// part that was cut off is removed
  /// @throws Error (exit 2) if `path` or its part is there otherwise, or cannot be made
  FolderWriter(const std::filesystem::path& path, std::vector<inputs::huggingface::Entry> entries,
               std::int64_t shard_bytes, bool keeps = false);
  FolderWriter(const FolderWriter&) = delete;
  FolderWriter& operator=(const FolderWriter&) = delete;
  /// Removes what is not complete.
  ~FolderWriter();

  const std::filesystem::path& path() const { return path_; }
  /// Where further files of the folder go.
  const std::filesystem::path& part() const { return part_; }
  std::size_t shards() const { return names_.size(); }
  std::int64_t bytes() const { return bytes_; }

  void write(const std::string& tensor, std::int64_t offset, std::span<const std::byte> from);
  /// Writes the index, syncs, and gives the folder its name.
  void commit();

 private:
  struct Place {
    std::size_t shard;
    std::size_t entry;
  };
  void divide(std::vector<inputs::huggingface::Entry> entries, std::int64_t shard_bytes);
  void write_index() const;

  bool keeps_;
  std::filesystem::path path_;
  std::filesystem::path part_;
  std::vector<std::unique_ptr<inputs::huggingface::SafetensorsWriter>> shards_;
  std::vector<std::string> names_;  ///< of the shards' files
  std::map<std::string, Place> places_;
  std::int64_t bytes_ = 0;
  bool owned_ = false;
};

}  // namespace stowage::run
