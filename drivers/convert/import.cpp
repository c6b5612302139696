#include "drivers/convert/import.hpp"

#include <fmt/ranges.h>

#include <filesystem>
#include <memory>

#include "drivers/common/folder_weights.hpp"
#include "drivers/common/options.hpp"
#include "drivers/common/weights.hpp"
#include "drivers/convert/byte_progress.hpp"
#include "drivers/convert/side_files.hpp"
#include "execution/error.hpp"
#include "results/checkpoint_directory.hpp"
#include "results/format.hpp"
#include "results/output_path.hpp"
#include "results/part_file.hpp"

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

/// A text to be written, and where to.
struct TextFile {
  results::NamedPath path;
  results::FileKind kind;
  std::string text;
};

/// Text files under construction: one that is not committed leaves nothing.
class TextFiles {
 public:
  /// @throws Error (exit 2) if one is not free, or would replace an input
  TextFiles(const std::vector<TextFile>& files, const std::vector<results::NamedPath>& inputs) {
    std::vector<results::NamedPath> outputs;
    for (const TextFile& file : files) outputs.push_back(file.path);
    results::require_apart(outputs, inputs);
    for (const TextFile& file : files) {
      parts_.push_back(std::make_unique<results::PartFile>(file.path.path, file.kind));
      write_text(parts_.back()->part(), file.text);
    }
  }

  void commit() const {
    for (const auto& part : parts_) part->commit();
  }

 private:
  std::vector<std::unique_ptr<results::PartFile>> parts_;
};

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
  if (!directory.steps().empty())
    throw_usage("--output {}: holds checkpoints already", options.output);
  directory.claim();
  const fs::path side = fs::path(options.output) / kSideFolder;
  const std::vector<std::string> copied = side_files(options.folder);
  std::vector<TextFile> texts = {{{"--deck", options.deck}, results::FileKind::deck, text}};
  std::vector<results::NamedPath> read;
  const auto copy = [&](const std::string& name) {
    const fs::path from = fs::path(options.folder) / name;
    read.push_back({"the model's file", from});
    texts.push_back({{"the copy", side / name}, results::FileKind::model_file, read_text(from)});
  };
  copy(hf::kConfigFile);
  for (const std::string& name : copied) copy(name);
  const TextFiles files(texts, read);
  ByteProgress progress(weights.folder().bytes());
  const std::vector<results::TensorSource> sources = counted(weights.sources(), progress);
  (void)directory.save(weights_state(deck), sources);
  files.commit();
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
