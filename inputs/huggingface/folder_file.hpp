#pragma once

#include <cstdint>
#include <string>

/// Files of a model's folder. Somebody else made the folder: a file may be a link to a secret, a
/// FIFO that is never written, or larger than any memory.
namespace stowage::inputs::huggingface {

/// The path of a file of the folder, which need not exist. A link may lead to a file of the folder.
/// In a Hugging Face cache, where folders are `<model>/snapshots/<revision>`, it may also lead to
/// `<model>/blobs`.
/// @throws Error (exit 2) if a link leads elsewhere or nowhere
std::string path_in(const std::string& folder, const std::string& name);

/// The text of a plain file. @throws Error (exit 2) if it is another kind of file, cannot be read
/// or has more than `most_bytes`
std::string read_text(const std::string& path, std::int64_t most_bytes);

}  // namespace stowage::inputs::huggingface
