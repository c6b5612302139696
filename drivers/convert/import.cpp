#include "drivers/convert/import.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "drivers/convert/byte_progress.hpp"
#include "execution/error.hpp"
#include "execution/printable.hpp"
#include "forecast/plan/options.hpp"
#include "inputs/data/run_section.hpp"
#include "results/checkpoint_directory.hpp"
#include "results/format.hpp"
#include "results/output_path.hpp"
#include "results/part_file.hpp"
#include "run/export/side_files.hpp"
#include "run/state/folder_weights.hpp"
#include "run/state/weights.hpp"

namespace stowage::drivers {
namespace {

namespace fs = std::filesystem;
namespace hf = inputs::huggingface;
using execution::throw_usage;

/// A deck that trains on from the weights, as soon as it names data.
std::string deck_text(const hf::Config& config, const std::string& dtype,
                      const ImportOptions& options) {
  return fmt::format(
      "# The model of {}, which its weights in {} belong to.\n"
      "# Sizes and rates of a step belong in [train] and [optim], your tokens in [data].\n\n"
      "[run]\nname = {}\n\n{}\n[train]\ndtype = \"{}\"\n\n[data]\n"
      "# Random tokens. Of your own: source = \"auto\" and path = \"...\".\n"
      "source = \"synthetic\"\n\n"
      "[checkpoint]\ndirectory = {}\n",
      inputs::to_toml(fs::path(options.folder).filename().string()),
      inputs::to_toml(options.output), inputs::to_toml(fs::path(options.deck).stem().string()),
      config.deck_text(), dtype, inputs::to_toml(options.output));
}

/// The name in train.dtype of the type that most bytes of the weights have.
std::string main_dtype(const hf::ModelFolder& folder) {
  std::array<std::pair<std::string_view, std::string_view>, 3> words = {
      {{"BF16", "bf16"}, {"F32", "fp32"}, {"F64", "fp64"}}};
  std::map<std::string, std::int64_t> bytes;
  for (const std::string& name : folder.names())
    bytes[folder.find(name)->dtype] += folder.find(name)->bytes();
  return std::string(std::ranges::max_element(words, {}, [&](const auto& word) {
                       return bytes[std::string(word.first)];
                     })->second);
}

/// What is to be known of the model, a line each.
std::string notes_of(const run::PublishedModel& model, const std::string& dtype) {
  std::string notes;
  if (!model.config.ignored.empty())
    notes += fmt::format("# decide nothing that is computed, and are left out: {}\n",
                         fmt::join(model.config.ignored, ", "));
  std::vector<std::string> left_out;
  for (const std::string& name : model.folder->names())
    if (hf::is_left_out(*model.config.family, name)) left_out.push_back(name);
  if (!left_out.empty())
    notes += fmt::format("# left out, and not exported again: '{}' and its like, {} in all\n",
                         execution::printable(left_out.front()), left_out.size());
  if (model.head_of_own)
    notes +=
        "# config.json ties the head to the embedding, but the files have another head: the model "
        "is imported with model.untie_embeddings = true\n";
  if (model.config.dtype.empty())
    notes += fmt::format(
        "# config.json names no dtype that a run can have: train.dtype = \"{}\", that of the "
        "weights\n",
        dtype);
  return notes;
}

/// A line about weights that a run would store in another type than the files.
std::string note_of_dtypes(const std::vector<results::TensorSource>& sources,
                           const inputs::Deck& deck) {
  std::map<std::string, execution::Dtype> in_run;
  for (const results::TensorSpec& spec : run::weights_of(deck)) in_run[spec.name] = spec.dtype;
  std::map<std::string_view, int> differing;
  for (const results::TensorSource& source : sources)
    if (source.spec.dtype != in_run.at(source.spec.name))
      ++differing[hf::name_of(source.spec.dtype)];
  std::string counts;
  for (const auto& [name, count] : differing)
    counts += fmt::format("{}{} of {}", counts.empty() ? "" : ", ", count, name);
  if (counts.empty()) return {};
  return fmt::format("# of {} tensors, files have {}; a run stores them as train.dtype = \"{}\"\n",
                     sources.size(), counts,
                     deck.get<std::string>(inputs::key(&inputs::TrainConfig::dtype)));
}

/// A file to be written: a text, or the copy of a file.
struct SideFile {
  results::NamedPath path;
  results::FileKind kind;
  std::string text;
  std::optional<fs::path> copied;
};

/// Files under construction: one that is not committed leaves nothing.
class SideFiles {
 public:
  /// @throws Error (exit 2) if one is not free, or would replace an input or another output
  SideFiles(const std::vector<SideFile>& files, const std::vector<results::NamedPath>& inputs,
            const results::NamedPath& other) {
    std::vector<results::NamedPath> outputs = {other};
    for (const SideFile& file : files) outputs.push_back(file.path);
    results::require_apart(outputs, inputs);
    for (const SideFile& file : files) {
      parts_.push_back(std::make_unique<results::PartFile>(file.path.path, file.kind));
      if (file.copied)
        run::copy_bytes(*file.copied, parts_.back()->part());
      else
        run::write_text(parts_.back()->part(), file.text);
    }
  }

  void commit() const {
    for (const auto& part : parts_) part->commit();
  }

 private:
  std::vector<std::unique_ptr<results::PartFile>> parts_;
};

/// A folder that import has taken: it is as it was before unless the import ends well.
class Claim {
 public:
  explicit Claim(results::CheckpointDirectory& directory, fs::path side)
      : directory_(directory), side_(std::move(side)), made_side_(!fs::exists(side_)) {
    try {
      directory_.claim();
    } catch (...) {
      directory_.give_back();
      throw;
    }
  }
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;
  ~Claim() {
    if (kept_) return;
    std::error_code ignored;
    if (made_side_) fs::remove(side_, ignored);  // if it is empty
    directory_.give_back();
  }
  void keep() { kept_ = true; }

 private:
  results::CheckpointDirectory& directory_;
  fs::path side_;
  bool made_side_, kept_ = false;
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

/// With paths that hold wherever a run starts.
ImportOptions resolved(ImportOptions options) {
  if (!fs::path(options.folder).has_filename())  // "folder/"
    options.folder = fs::path(options.folder).parent_path().string();
  if (options.output.empty()) throw_usage("--out: names no folder");
  if (options.deck.empty()) throw_usage("--deck: names no file");
  // The deck is for runs in any folder: one that finds no checkpoint would start from nothing.
  std::error_code error;
  const fs::path output = fs::absolute(options.output, error);
  if (error) throw_usage("--out {}: no working directory: {}", options.output, error.message());
  options.output = output.lexically_normal().string();
  return options;
}

}  // namespace

std::string import_folder(const ImportOptions& given) {
  const ImportOptions options = resolved(given);
  run::PublishedModel model = run::open_model(options.folder, {.keys = options.ignored_keys});
  const std::string dtype =
      model.config.dtype.empty() ? main_dtype(*model.folder) : model.config.dtype;
  const std::string text = deck_text(model.config, dtype, options);
  const inputs::Deck deck =
      inputs::Deck::parse(text, "the deck to be made", {}, model.config.places);
  std::string notes = notes_of(model, dtype);
  const run::FolderWeights weights(std::move(model), deck);
  notes += note_of_dtypes(weights.sources(), deck);
  const std::vector<std::string> copied = run::side_files(options.folder);
  results::CheckpointDirectory directory(options.output);
  if (!directory.steps().empty())
    throw_usage("--out {}: holds checkpoints already", options.output);
  const fs::path side = fs::path(options.output) / run::kSideFolder;
  Claim claim(directory, side);
  std::vector<SideFile> made = {{{"--deck", options.deck}, results::FileKind::deck, text, {}}};
  std::vector<results::NamedPath> read;
  const auto copy = [&](const std::string& name) {
    const fs::path from = fs::path(options.folder) / name;
    read.push_back({"the model's file", from});
    made.push_back({{"the copy", side / name}, results::FileKind::model_file, {}, from});
  };
  std::vector<std::string> kept = {hf::kConfigFile};
  kept.insert(kept.end(), copied.begin(), copied.end());
  for (const std::string& name : kept) copy(name);
  const SideFiles files(made, read, {"the checkpoint", directory.file_of(0)});
  ByteProgress progress(weights.folder().bytes());
  const std::vector<results::TensorSource> sources = counted(weights.sources(), progress);
  (void)directory.save(run::weights_state(deck), sources);
  files.commit();
  claim.keep();
  return notes + fmt::format(
                     "{}: {} tensors, {}, of {} tensors of {}\n{}: a deck of the model\n"
                     "{}: {}\n",
                     directory.file_of(0).string(), sources.size(),
                     results::quantity(static_cast<double>(weights.folder().bytes()), "B"),
                     weights.folder().names().size(), options.folder, options.deck, side.string(),
                     execution::printable(fmt::format("{}", fmt::join(kept, ", "))));
}

}  // namespace stowage::drivers
