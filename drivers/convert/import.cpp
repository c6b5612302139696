#include "drivers/convert/import.hpp"

#include <fmt/ranges.h>

#include <filesystem>

#include "drivers/common/folder_weights.hpp"
#include "drivers/common/options.hpp"
#include "drivers/common/weights.hpp"
#include "drivers/convert/byte_progress.hpp"
#include "drivers/convert/side_files.hpp"
#include "execution/error.hpp"
#include "results/checkpoint_directory.hpp"
#include "results/format.hpp"

namespace stowage::drivers {
namespace {

namespace fs = std::filesystem;
namespace hf = inputs::huggingface;
using execution::throw_usage;

/// A deck that trains on from the weights, as soon as it names data.
std::string deck_text(const hf::Config& config, const ImportOptions& options) {
  const std::string dtype = config.dtype.empty() ? "bf16" : config.dtype;
  return fmt::format(
      "# The model of {}, which its weights in {} belong to.\n"
      "# Name your tokens in [data], and sizes and rates of a step in [train] and [optim].\n\n"
      "[run]\nname = {}\n\n{}\n[train]\ndtype = \"{}\"\n\n[data]\nsource = \"synthetic\"\n\n"
      "[checkpoint]\ndirectory = {}\n",
      fs::path(options.folder).filename().string(), options.output,
      inputs::to_toml(fs::path(options.deck).stem().string()), config.deck_text(), dtype,
      inputs::to_toml(options.output));
}

void require_free(const ImportOptions& options, results::CheckpointDirectory& directory) {
  if (fs::exists(options.deck)) throw_usage("--deck {}: is there already", options.deck);
  if (!directory.steps().empty())
    throw_usage("--output {}: holds checkpoints already", options.output);
  directory.claim();
}

/// With what is read counted.
std::vector<results::TensorSource> counted(std::vector<results::TensorSource> sources,
                                           ByteProgress& progress) {
  for (results::TensorSource& source : sources)
    source.read = [read = std::move(source.read), &progress](std::size_t offset,
                                                             std::span<std::byte> to) {
      read(offset, to);
      progress.add(std::ssize(to));
    };
  return sources;
}

}  // namespace

std::string import_folder(const ImportOptions& given) {
  ImportOptions options = given;
  if (!fs::path(options.folder).has_filename())  // "folder/"
    options.folder = fs::path(options.folder).parent_path().string();
  // The deck is for runs in any folder: one that finds no checkpoint would start from nothing.
  options.output = fs::absolute(options.output).lexically_normal().string();
  const hf::Config config = hf::read_config(options.folder);
  const std::string text = deck_text(config, options);
  const inputs::Deck deck = inputs::Deck::parse(text, options.folder + "/" + hf::kConfigFile);
  refuse_unsupported(deck);
  const FolderWeights weights(options.folder, *config.family, deck);
  results::CheckpointDirectory directory(options.output);
  require_free(options, directory);
  const fs::path side = fs::path(options.output) / kSideFolder;
  fs::create_directories(side);
  write_text(side / hf::kConfigFile, read_text(fs::path(options.folder) / hf::kConfigFile));
  const std::vector<std::string> copied = copy_side_files(options.folder, side);
  ByteProgress progress(weights.folder().bytes());
  const std::vector<results::TensorSource> sources = counted(weights.sources(), progress);
  (void)directory.save(weights_state(deck), sources);
  write_text(options.deck, text);
  std::string notes;
  if (!config.ignored.empty())
    notes = fmt::format("# decide nothing that is computed, and are left out: {}\n",
                        fmt::join(config.ignored, ", "));
  return notes + fmt::format(
                     "{}: {} tensors, {}, of {} tensors of {}\n{}: a deck of the model\n"
                     "{}: {}\n",
                     directory.file_of(0).string(), sources.size(),
                     results::quantity(static_cast<double>(weights.folder().bytes()), "B"),
                     weights.folder().names().size(), options.folder, options.deck, side.string(),
                     fmt::join(copied, ", "));
}

}  // namespace stowage::drivers
