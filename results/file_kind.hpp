#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

namespace stowage::results {

/// The kinds of file that a run leaves behind.
enum class FileKind {
  result_set,
  checkpoint,
  dump,
  json_lines,
  mlperf_log,
  trace,
  statistics,     ///< of documents
  product_table,  ///< rows of kernels/linear/product_table.inc
  token_data,     ///< tokens, their index or mask: plain numbers, which nobody can tell from others
  deck,           ///< of an imported model; who edited it since would lose that
  model_file      ///< what a published model has beside its weights
};

/// "the result set", "the JSON lines": how messages name it.
std::string_view name(FileKind kind);

/// The kind of a regular file by what it holds, whatever its name is. Empty if it is none of ours,
/// is damaged, or cannot be read.
std::optional<FileKind> kind_of(const std::filesystem::path& path);

/// Could this be what a killed writer of that kind left? True if it begins like such a file, or
/// with the zeros that stand where an HDF5 file's head is written last. `path` is a regular file.
bool may_be_unfinished(const std::filesystem::path& path, FileKind kind);

/// The root attribute `schema` of a dump.
inline constexpr std::string_view kDumpSchema = "stowage-dump";

/// How the statistics of documents begin.
inline constexpr std::string_view kStatisticsHead = "{\n \"schema\": \"stowage-documents\"";

/// How every line of an MLPerf log begins.
inline constexpr std::string_view kMlperfLineHead = ":::MLLOG ";

/// How a table of products begins.
inline constexpr std::string_view kProductTableHead =
    "// Made by `stowage_bench_kernels --product-table";

/// How a trace begins: the writer starts with it, so that `kind_of` knows it again.
inline constexpr std::string_view kTraceHead = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";

}  // namespace stowage::results
