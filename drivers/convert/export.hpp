#pragma once

#include <cstdint>
#include <string>

namespace stowage::drivers {

/// What `stowage_convert export` was asked for.
struct ExportOptions {
  std::string checkpoint;  ///< a file, or a folder of checkpoints: its latest
  std::string output;      ///< the folder to write
  std::string like;    ///< a published folder, for its tokenizer and the rest of its config.json;
                       ///< empty: what an import kept beside the checkpoint, if anything
  std::string family;  ///< model_type; empty: that of `like`, or the first that has such a model
  std::int64_t shard_bytes = std::int64_t{5} << 30;  ///< at most, unless one tensor is larger
};

/// The weights of a checkpoint as a Hugging Face folder: config.json, safetensors in shards with an
/// index, tokenizer. Weights have the dtype in which the checkpoint has them; some MiB of them are
/// in memory at a time. The folder is whole or not there.
/// @return what was made, for people
/// @throws Error (exit 2) for a checkpoint that cannot be read, a model that the family does not
/// have, or an output that is there
std::string export_checkpoint(const ExportOptions& options);

}  // namespace stowage::drivers
