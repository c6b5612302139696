#include "inputs/huggingface/model_folder.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "execution/error.hpp"
#include "inputs/huggingface/folder_file.hpp"
#include "inputs/huggingface/json_limits.hpp"

namespace stowage::inputs::huggingface {

using execution::throw_usage;
using nlohmann::json;

namespace {

namespace fs = std::filesystem;

/// Of an index, at most: read whole, and some forty times as much in memory at worst.
constexpr std::int64_t kMaxIndexBytes = std::int64_t{32} << 20;

json read_index(const std::string& path) {
  const std::string text = read_text(path, kMaxIndexBytes);
  detail::require_shallow(text, path);
  try {
    return json::parse(text);
  } catch (const json::exception& error) {
    throw_usage("{}: no JSON: {}", path, detail::shown_text(error.what()));
  }
}

/// name -> file, of an index.
std::map<std::string, std::string> read_weight_map(const std::string& path) {
  const json index = read_index(path);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    throw_usage("{}: has no object weight_map", path);
  std::map<std::string, std::string> map;
  for (const auto& [name, shard] : index["weight_map"].items()) {
    detail::require_name(name, path);
    if (!shard.is_string()) throw_usage("{}: weight_map of '{}' is no string", path, name);
    const fs::path file_name = shard.get<std::string>();
    if (file_name.empty() || file_name != file_name.filename() || file_name == "..")
      throw_usage("{}: weight_map of '{}' is '{}', which is no file of this folder", path, name,
                  detail::shown_text(file_name.string()));
    detail::require_name(file_name.string(), path);
    map[name] = file_name.string();
  }
  return map;
}

}  // namespace

ModelFolder::ModelFolder(std::string path) : path_(std::move(path)) {
  std::error_code error;
  if (!fs::is_directory(path_, error)) throw_usage("{} is not a folder", path_);
  const std::string index = path_in(path_, kIndexFile);
  const std::string single = path_in(path_, kSingleFile);
  const bool sharded = fs::exists(index, error);
  if (sharded && fs::exists(single, error))
    throw_usage("{}: has both {} and {}: which one counts?", path_, kIndexFile, kSingleFile);
  if (sharded)
    open_shards(index);
  else if (fs::exists(single, error))
    files_.emplace_back(single);
  else
    throw_usage("{}: has neither {} nor {}", path_, kSingleFile, kIndexFile);
  note_tensors();
}

void ModelFolder::open_shards(const std::string& index_path) {
  const std::map<std::string, std::string> map = read_weight_map(index_path);
  std::map<std::string, std::size_t> opened;
  for (const auto& [name, shard] : map)
    if (opened.emplace(shard, files_.size()).second) files_.emplace_back(path_in(path_, shard));
  for (const auto& [name, shard] : map)
    if (files_[opened[shard]].header().find(name) == nullptr)
      throw_usage("{}: tensor '{}' is said to be in {}, which does not have it", index_path, name,
                  shard);
  for (const SafetensorsFile& file : files_)
    for (const Entry& entry : file.header().entries)
      if (!map.contains(entry.name))
        throw_usage("{}: does not name tensor '{}' of {}", index_path, entry.name, file.path());
}

void ModelFolder::note_tensors() {
  for (std::size_t file = 0; file < files_.size(); ++file)
    for (const Entry& entry : files_[file].header().entries) places_.push_back({&entry, file});
  std::sort(places_.begin(), places_.end(),
            [](const Place& a, const Place& b) { return a.entry->name < b.entry->name; });
  const auto twice = std::adjacent_find(
      places_.begin(), places_.end(),
      [](const Place& a, const Place& b) { return a.entry->name == b.entry->name; });
  if (twice != places_.end())
    throw_usage("{}: tensor '{}' stands in {} and in {}", path_, twice->entry->name,
                files_[twice->file].path(), files_[std::next(twice)->file].path());
}

std::vector<std::string> ModelFolder::names() const {
  std::vector<std::string> all;
  for (const Place& place : places_) all.push_back(place.entry->name);
  return all;
}

const ModelFolder::Place* ModelFolder::place_of(std::string_view name) const {
  const auto found = std::lower_bound(
      places_.begin(), places_.end(), name,
      [](const Place& place, std::string_view other) { return place.entry->name < other; });
  return found != places_.end() && found->entry->name == name ? &*found : nullptr;
}

const Entry* ModelFolder::find(std::string_view name) const {
  const Place* place = place_of(name);
  return place == nullptr ? nullptr : place->entry;
}

const SafetensorsFile& ModelFolder::file_of(std::string_view name) const {
  const Place* place = place_of(name);
  STOWAGE_ASSERT(place != nullptr, "{} has no tensor {}", path_, name);
  return files_[place->file];
}

std::int64_t ModelFolder::bytes() const {
  std::int64_t sum = 0;
  for (const Place& place : places_) sum += place.entry->bytes();
  return sum;
}

}  // namespace stowage::inputs::huggingface
