#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "inputs/huggingface/safetensors_file.hpp"

namespace stowage::inputs::huggingface {

inline constexpr const char* kConfigFile = "config.json";
inline constexpr const char* kIndexFile = "model.safetensors.index.json";
inline constexpr const char* kSingleFile = "model.safetensors";

/// The weights of a Hugging Face folder: one safetensors file, or shards with an index. Headers are
/// read once; bytes only where they are asked for.
class ModelFolder {
 public:
  /// @throws Error (exit 2) if there are no weights, or index and shards contradict each other
  explicit ModelFolder(std::string path);

  const std::string& path() const { return path_; }
  /// Names of all tensors, sorted.
  std::vector<std::string> names() const;
  /// The tensor of this name, or nullptr.
  const Entry* find(std::string_view name) const;
  /// The file that holds a tensor of this folder.
  const SafetensorsFile& file_of(std::string_view name) const;
  /// Bytes of all tensors.
  std::int64_t bytes() const;

 private:
  struct Place {
    const Entry* entry;
    std::size_t file;
  };
  void open_shards(const std::string& index_path);
  void note_tensors();
  const Place* place_of(std::string_view name) const;

  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::vector<Place> places_;  ///< sorted by name
};

}  // namespace stowage::inputs::huggingface
