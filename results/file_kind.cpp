#include "results/file_kind.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <string>

#include "execution/error.hpp"
#include "results/checkpoint.hpp"
#include "results/h5.hpp"
#include "results/result_set.hpp"

namespace stowage::results {
namespace {

constexpr std::string_view kJsonLineHead = "{\"event\":\"";
constexpr std::string_view kHdf5Signature = "\x89HDF\r\n\x1a\n";

std::string head_of(const std::filesystem::path& path) {
  std::array<char, 64> bytes{};
  std::ifstream file(path, std::ios::binary);
  file.read(bytes.data(), bytes.size());
  return {bytes.data(), static_cast<std::size_t>(file.gcount())};
}

bool has_schema(const std::filesystem::path& path, std::string_view schema) {
  try {
    (void)h5::File::open(path, schema);
    return true;
  } catch (const execution::Error&) {
    return false;
  }
}

}  // namespace

std::string_view name(FileKind kind) {
  static constexpr std::array<std::string_view, 7> kNames = {
      "the result set", "the checkpoint", "the dump",      "the JSON lines",
      "the trace",      "the statistics", "the token data"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::optional<FileKind> kind_of(const std::filesystem::path& path) {
  const std::string head = head_of(path);
  if (head.starts_with(kJsonLineHead)) return FileKind::json_lines;
  if (head.starts_with(kTraceHead)) return FileKind::trace;
  if (head.starts_with(kStatisticsHead)) return FileKind::statistics;
  if (head.starts_with(kCheckpointSchema)) return FileKind::checkpoint;
  if (!head.starts_with(kHdf5Signature)) return std::nullopt;
  for (const auto& [schema, kind] : {std::pair{kResultSchema, FileKind::result_set},
                                     {kDumpSchema, FileKind::dump},
                                     {kCheckpointSchema, FileKind::checkpoint}})
    if (has_schema(path, schema)) return kind;
  return std::nullopt;
}

bool may_be_unfinished(const std::filesystem::path& path, FileKind kind) {
  const std::string head = head_of(path);
  if (kind == FileKind::json_lines) return head.starts_with(kJsonLineHead);
  if (kind == FileKind::trace) return head.starts_with(kTraceHead);
  if (kind == FileKind::statistics) return head.starts_with(kStatisticsHead);
  if (kind == FileKind::token_data) return false;
  return head.starts_with(kHdf5Signature) || head.starts_with(kCheckpointSchema) ||
         std::ranges::all_of(head, [](char c) { return c == '\0'; });
}

}  // namespace stowage::results
