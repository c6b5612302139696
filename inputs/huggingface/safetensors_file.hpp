#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "inputs/huggingface/safetensors.hpp"

namespace stowage::inputs::huggingface {

/// An owned file descriptor for reads and writes at given places. Move-only.
class Descriptor {
 public:
  enum class Mode { read, create };

  /// @throws Error (exit 2) that names path and reason; `create` replaces what is there
  Descriptor(std::string path, Mode mode);
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept
      : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;

  const std::string& path() const { return path_; }
  std::int64_t size() const;

  /// @throws Error (exit 2) if the file ends before, (exit 4) if the system fails
  void read(std::int64_t offset, std::span<std::byte> to) const;
  void write(std::int64_t offset, std::span<const std::byte> from) const;
  /// Waits until all bytes are on the disk.
  void sync() const;

 private:
  std::string path_;
  int descriptor_ = -1;
};

/// An open safetensors file, of which ranges of tensors are read: as much memory as they take.
class SafetensorsFile {
 public:
  /// @throws Error (exit 2) that names the file, and the tensor, for anything but a whole one
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const Header& header() const { return header_; }

  /// Bytes [offset, offset + to.size()) of a tensor of this file.
  void read(const Entry& entry, std::int64_t offset, std::span<std::byte> to) const;

 private:
  Descriptor file_;
  Header header_;
};

/// Writes a safetensors file: its header at once, then ranges of tensors in any order.
class SafetensorsWriter {
 public:
  /// @param entries name, dtype and shape, in the order in which they will lie
  SafetensorsWriter(const std::string& path, std::vector<Entry> entries,
                    const std::map<std::string, std::string>& metadata);

  const std::vector<Entry>& entries() const { return entries_; }
  void write(std::size_t entry, std::int64_t offset, std::span<const std::byte> from);
  /// Syncs. Every byte of every tensor was written.
  void finish();

 private:
  std::vector<Entry> entries_;
  std::string start_;
  Descriptor file_;
  std::int64_t missing_ = 0;  ///< bytes of tensors that were not written yet
};

}  // namespace stowage::inputs::huggingface
