#include "run/export/folder_writer.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "execution/error.hpp"
#include "inputs/huggingface/model_folder.hpp"
#include "results/output_path.hpp"
#include "run/export/side_files.hpp"

namespace stowage::run {

namespace fs = std::filesystem;
namespace hf = inputs::huggingface;
using execution::throw_usage;
using results::part_of;

namespace {

/// Bytes of an entry whose place is not known yet.
std::int64_t bytes_of(const hf::Entry& entry) {
  std::int64_t bits = hf::bits_of(entry.dtype);
  for (const std::int64_t extent : entry.shape) bits *= extent;
  return bits / 8;
}

/// A link that leads nowhere is there, too.
bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

void rename_folder(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error)
    throw execution::Error(
        execution::Exit::runtime,
        fmt::format("rename of {} to {} failed: {}", from.string(), to.string(), error.message()));
}

/// The first of "path.older_1", "path.older_2" ... that nothing has.
fs::path older_name(const fs::path& path) {
  for (int i = 1;; ++i)
    if (fs::path name = fmt::format("{}.older_{}", path.string(), i); !is_there(name)) return name;
}

}  // namespace

fs::path new_folder(const fs::path& given) {
  fs::path path = given.lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  if (path.empty()) throw_usage("--out: names no folder");
  if (is_there(path)) throw_usage("--out {}: is there already", path.string());
  if (is_there(part_of(path)))
    throw_usage("--out {}: {} is there, of an export that was cut off or is under way; remove it",
                path.string(), part_of(path).string());
  return path;
}

FolderWriter::FolderWriter(const fs::path& path, std::vector<hf::Entry> entries,
                           std::int64_t shard_bytes, bool keeps)
    : keeps_(keeps), path_(keeps ? path : new_folder(path)), part_(part_of(path_)) {
  std::error_code error;
  if (keeps) fs::remove_all(part_, error);  // of a run that was killed
  if (!fs::create_directories(part_, error))
    throw_usage("{}: cannot be made: {}", part_.string(), error.message());
  owned_ = true;
  try {
    divide(std::move(entries), shard_bytes);
  } catch (...) {
    fs::remove_all(part_, error);
    throw;
  }
}

FolderWriter::~FolderWriter() {
  std::error_code ignored;
  shards_.clear();
  if (owned_) fs::remove_all(part_, ignored);
}

void FolderWriter::divide(std::vector<hf::Entry> entries, std::int64_t shard_bytes) {
  std::vector<std::vector<hf::Entry>> shards;
  std::int64_t filled = 0;
  for (hf::Entry& entry : entries) {
    const std::int64_t bytes = bytes_of(entry);
    if (shards.empty() || (filled > 0 && filled + bytes > shard_bytes)) {
      shards.emplace_back();
      filled = 0;
    }
    filled += bytes;
    bytes_ += bytes;
    shards.back().push_back(std::move(entry));
  }
  for (std::size_t i = 0; i < shards.size(); ++i) {
    // Wide elements first: every tensor is aligned to its elements.
    std::sort(shards[i].begin(), shards[i].end(), [](const hf::Entry& a, const hf::Entry& b) {
      return std::pair(-hf::bits_of(a.dtype), std::string_view(a.name)) <
             std::pair(-hf::bits_of(b.dtype), std::string_view(b.name));
    });
    for (std::size_t e = 0; e < shards[i].size(); ++e) places_[shards[i][e].name] = {i, e};
    names_.push_back(shards.size() == 1
                         ? hf::kSingleFile
                         : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size()));
    shards_.push_back(std::make_unique<hf::SafetensorsWriter>(
        (part_ / names_.back()).string(), std::move(shards[i]),
        std::map<std::string, std::string>{{"format", "pt"}}));
  }
}

void FolderWriter::write(const std::string& tensor, std::int64_t offset,
                         std::span<const std::byte> from) {
  const Place& place = places_.at(tensor);
  shards_[place.shard]->write(place.entry, offset, from);
}

void FolderWriter::write_index() const {
  nlohmann::ordered_json index;
  index["metadata"]["total_size"] = bytes_;
  for (const auto& [name, place] : places_) index["weight_map"][name] = names_[place.shard];
  write_text(part_ / hf::kIndexFile, index.dump(2) + "\n");
}

void FolderWriter::commit() {
  for (const auto& shard : shards_) shard->finish();
  shards_.clear();
  if (names_.size() > 1) write_index();
  if (keeps_ && is_there(path_)) rename_folder(path_, older_name(path_));
  rename_folder(part_, path_);
  owned_ = false;
}

}  // namespace stowage::run
