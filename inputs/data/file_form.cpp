#include "inputs/data/file_form.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>

#include "inputs/data/json_line.hpp"

namespace stowage::inputs {
namespace {

struct Row {
  std::string_view magic;
  FileForm form;
};

// None has a line feed; HDF5's is cut before it. Thus a first line is enough.
constexpr Row kForms[] = {
    {"\x1f\x8b", {"gzip", "gzip -dc"}},
    {"\x1f\x9d", {"compress (.Z)", "gzip -dc"}},
    {"\x28\xb5\x2f\xfd", {"zstd", "zstd -dc"}},
    {"\3757zXZ", {"xz", "xz -dc"}},
    {"\x04\x22\x4d\x18", {"lz4", "lz4 -dc"}},
    {"PK\x03\x04", {"zip", "unzip -p"}},
    {"PAR1", {"Parquet", ""}},
    {"%PDF-", {"PDF", ""}},
    {{"ARROW1\0", 7}, {"Arrow", ""}},
    {"\xff\xff\xff\xff", {"Arrow", ""}},  // a stream, as the package datasets keeps them
    {"\x93NUMPY", {"npy", ""}},
    {"\x89HDF\r", {"HDF5", ""}},
};
constexpr FileForm kBzip2 = {"bzip2", "bzip2 -dc"};
constexpr FileForm kSafetensors = {"safetensors", ""};

/// "BZh", the block size in 100 kB, and the magic of the first block.
bool is_bzip2(std::string_view first) {
  return first.starts_with("BZh") &&
         first.substr(std::min<std::size_t>(first.size(), 4), 6) == "1AY&SY";
}

/// Eight bytes with the length of a JSON object, at most 100 MB, and the object. The first eight
/// bytes of a text are a number far above.
bool is_safetensors(std::string_view first) {
  if (first.size() < 9 || first[8] != '{') return false;
  std::uint64_t length = 0;
  std::memcpy(&length, first.data(), sizeof(length));
  return length <= 100'000'000;
}

}  // namespace

const FileForm* foreign_form(std::string_view first) {
  for (const Row& row : kForms)
    if (first.starts_with(row.magic)) return &row.form;
  if (is_bzip2(first)) return &kBzip2;
  return is_safetensors(first) ? &kSafetensors : nullptr;
}

std::string how_to_prepare(const FileForm& form, const std::string& path) {
  if (form.unpack.empty())
    return "write its documents as JSON lines, then stowage_data prepare FILE.jsonl --out PREFIX";
  return fmt::format("{}{}{}{} | stowage_data prepare - --out PREFIX", form.unpack,
                     path == "-" ? "" : " '", path == "-" ? "" : path, path == "-" ? "" : "'");
}

bool is_json_lines(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n", kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
  if (!text.starts_with('{')) return false;
  const nlohmann::json value = parse_json_line(text.substr(0, text.find('\n')));
  return value.is_object() && !value.empty();
}

}  // namespace stowage::inputs
