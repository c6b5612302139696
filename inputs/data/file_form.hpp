#pragma once

#include <string>
#include <string_view>

namespace stowage::inputs {

/// A file format whose bytes are neither tokens nor text.
struct FileForm {
  std::string_view name;    ///< "gzip"
  std::string_view unpack;  ///< command that prints what such a file holds; empty: not compressed
};

/// The format that a file's first bytes belong to: gzip, compress (.Z), zstd, xz, bzip2, lz4, zip,
/// Parquet, PDF, Arrow, npy, HDF5 or safetensors; nullptr for none of them. A file's first line is
/// enough to tell.
const FileForm* foreign_form(std::string_view first);

/// How `stowage_data prepare` comes to the documents of such a file; path "-": standard input.
std::string how_to_prepare(const FileForm& form, const std::string& path);

/// True if a file holds JSON lines: its first line that is not blank is a JSON object of at least
/// one key. Prose, source code and JSON over several lines do not.
bool is_json_lines(std::string_view text);

}  // namespace stowage::inputs
