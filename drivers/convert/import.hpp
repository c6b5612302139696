#pragma once

#include <string>
#include <vector>

namespace stowage::drivers {

/// What `stowage_convert import` was asked for.
struct ImportOptions {
  std::string folder;                     ///< config.json and safetensors
  std::string output;                     ///< folder of checkpoints, for checkpoint.directory
  std::string deck;                       ///< path of the deck to write
  std::vector<std::string> ignored_keys;  ///< of config.json: not known, and passed over
};

/// A Hugging Face folder as a checkpoint of weights at step 0, with a deck of its model. The
/// tokenizer's files and config.json are copied beside it, for the way back. Of the weights, some
/// MiB are in memory at a time.
/// @return what was made, for people
/// @throws Error (exit 2) for a folder that cannot be taken whole, or outputs that are there
std::string import_folder(const ImportOptions& options);

}  // namespace stowage::drivers
