#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "inputs/deck/deck.hpp"
#include "run/state/weights.hpp"

namespace stowage::run {

/// What becomes of a checkpoint's weights.
struct ExportOptions {
  std::string output;  ///< the folder to write
  std::string like;    ///< a published folder, for its tokenizer and the rest of its config.json;
                       ///< empty: what an import kept beside the checkpoint, if anything
  std::string family;  ///< model_type; empty: that of `like`, or the first that has such a model
  std::int64_t shard_bytes = std::int64_t{5} << 30;  ///< at most, unless one tensor is larger
  Weights weights = Weights::trained;
  bool keeps = false;  ///< what has the folder's name gets another, once the new one is whole
};

/// Throws Error (exit 2) if no model family has the deck's model.
/// @param like as in ExportOptions  @param folder of the checkpoints
void require_exportable(const inputs::Deck& deck, const std::string& like,
                        const std::filesystem::path& folder);

/// The weights of a checkpoint as a Hugging Face folder: config.json, safetensors in shards with an
/// index, tokenizer. Weights have the dtype in which the checkpoint has them, averages that of the
/// weights; some MiB of them are in memory at a time. The folder is whole or not there.
class ModelExport {
 public:
  /// @throws Error (exit 2) for a checkpoint that cannot be read, a model that the family does not
  /// have, or an output that is there
  ModelExport(const std::filesystem::path& checkpoint, const ExportOptions& options);
  ~ModelExport();

  /// Of all weights.
  std::int64_t bytes() const;
  /// Writes everything, then gives the folder its name, unless `abandoned` becomes true. Another
  /// thread than that of the constructor may call it.
  /// @param progress is told of bytes that were written just now
  /// @throws Error (exit 2) for a damaged tensor, (exit 4) if a file cannot be written whole
  void write(const std::function<void(std::int64_t)>& progress, const std::atomic<bool>& abandoned);
  /// What was made, for people: "published/step_00000200: 1.9 MB of family nemotron_h, ...".
  std::string text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace stowage::run
