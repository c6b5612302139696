#include "results/file_kind.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <string>
#include <utility>

#include "execution/error.hpp"
#include "results/checkpoint.hpp"
#include "results/h5.hpp"
#include "results/result_set.hpp"

namespace stowage::results {
namespace {

constexpr std::string_view kJsonLineHead = "{\"event\":\"";
constexpr std::array<std::pair<FileKind, std::string_view>, 5> kTextHeads = {
    {{FileKind::json_lines, kJsonLineHead},
     {FileKind::mlperf_log, kMlperfLineHead},
     {FileKind::trace, kTraceHead},
     {FileKind::statistics, kStatisticsHead},
     {FileKind::product_table, kProductTableHead}}};
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
  static constexpr std::array<std::string_view, 11> kNames = {
      "the result set", "the checkpoint", "the dump",        "the JSON lines",
      "the MLPerf log", "the trace",      "the statistics",  "the product table",
      "the token data", "the deck",       "the model's file"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::optional<FileKind> kind_of(const std::filesystem::path& path) {
  const std::string head = head_of(path);
  for (const auto& [kind, text] : kTextHeads)
    if (head.starts_with(text)) return kind;
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
  for (const auto& [of, text] : kTextHeads)
    if (of == kind) return head.starts_with(text);
  if (kind == FileKind::token_data || kind == FileKind::deck || kind == FileKind::model_file)
    return false;
  return head.starts_with(kHdf5Signature) || head.starts_with(kCheckpointSchema) ||
         std::ranges::all_of(head, [](char c) { return c == '\0'; });
}

}  // namespace stowage::results
