#include "drivers/convert/export.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "drivers/convert/byte_progress.hpp"
#include "drivers/convert/folder_writer.hpp"
#include "drivers/convert/side_files.hpp"
#include "execution/error.hpp"
#include "execution/printable.hpp"
#include "results/checkpoint_directory.hpp"
#include "results/format.hpp"
#include "run/state/folder_weights.hpp"
#include "run/state/weights.hpp"

namespace stowage::drivers {
namespace {

namespace fs = std::filesystem;
namespace hf = inputs::huggingface;
using execution::throw_usage;

fs::path find_checkpoint(const std::string& given) {
  if (!fs::is_directory(given)) return given;
  const results::CheckpointDirectory::Found found = results::CheckpointDirectory(given).latest();
  if (!found.path)
    throw_usage("{}: holds no checkpoint that is whole ({})", given,
                fmt::join(found.skipped, "; "));
  return *found.path;
}

/// The published folder that the output resembles: given, kept by an import, or none.
fs::path find_like(const ExportOptions& options, const fs::path& checkpoint) {
  if (!options.like.empty()) return options.like;
  const fs::path kept = checkpoint.parent_path() / kSideFolder;
  return fs::exists(kept / hf::kConfigFile) ? kept : fs::path();
}

const hf::Family& choose_family(const ExportOptions& options, const fs::path& like,
                                const inputs::Deck& deck) {
  if (!options.family.empty()) return hf::family_of(options.family, "--family");
  return like.empty() ? hf::family_of(deck) : hf::read_family(like.string());
}

/// How names begin in the folder of `like`, where it has weights.
std::string find_trunk(const fs::path& like, const hf::Family& family) {
  const bool weights =
      !like.empty() && (fs::exists(like / hf::kSingleFile) || fs::exists(like / hf::kIndexFile));
  return weights ? run::trunk_of(hf::ModelFolder(like.string()), family)
                 : std::string(family.trunks.front());
}

/// A tensor of ours and what the folder has of it.
struct Weight {
  results::TensorSpec spec;  ///< as the checkpoint stores it
  std::vector<hf::Piece> pieces;
};

std::vector<Weight> find_weights(const results::Checkpoint& checkpoint, const hf::Family& family,
                                 const inputs::Deck& deck, const std::string& trunk) {
  std::map<std::string, results::TensorSpec> held;
  for (const results::TensorSpec& spec : checkpoint.tensors()) held[spec.name] = spec;
  std::vector<Weight> weights;
  for (const results::TensorSpec& wanted : run::weights_of(deck)) {
    const auto found = held.find(wanted.name);
    std::vector<hf::Piece> pieces =
        hf::pieces(family, hf::sizes_of(deck), wanted.name, wanted.shape, trunk);
    if (found == held.end() && pieces.empty()) continue;  // an imported family has none of it
    if (found == held.end() || found->second.shape != wanted.shape)
      throw_usage("{}: has no tensor '{}' of shape ({})", checkpoint.path().string(), wanted.name,
                  fmt::join(wanted.shape, ", "));
    weights.push_back({found->second, std::move(pieces)});
  }
  std::reverse(weights.begin(), weights.end());  // from the embedding to the head
  return weights;
}

std::vector<hf::Entry> entries_of(const std::vector<Weight>& weights) {
  std::vector<hf::Entry> entries;
  std::set<std::string_view> named;  // one of theirs may have elements of several of ours
  for (const Weight& weight : weights)
    for (const hf::Piece& piece : weight.pieces)
      if (named.insert(piece.name).second)
        entries.push_back({piece.name, std::string(hf::name_of(weight.spec.dtype)), piece.shape});
  return entries;
}

/// Bytes of one of ours into those of theirs that they lie in.
void write_pieces(const Weight& weight, std::size_t offset, std::span<const std::byte> from,
                  FolderWriter& writer) {
  const auto size = static_cast<std::int64_t>(execution::size_bytes(weight.spec.dtype));
  const auto begin = static_cast<std::int64_t>(offset);
  const std::int64_t end = begin + std::ssize(from);
  for (const hf::Piece& piece : weight.pieces) {
    const std::int64_t first = std::max(begin, piece.begin * size);
    const std::int64_t last = std::min(end, (piece.begin + piece.elements) * size);
    if (first < last)
      writer.write(piece.name, first + (piece.their_begin - piece.begin) * size,
                   from.subspan(static_cast<std::size_t>(first - begin),
                                static_cast<std::size_t>(last - first)));
  }
}

/// The family's files have no such tensor: it must say nothing.
void require_zero(const Weight& weight, std::span<const std::byte> from, const hf::Family& family) {
  if (std::any_of(from.begin(), from.end(), [](std::byte b) { return b != std::byte{0}; }))
    throw_usage("tensor '{}' is not zero, and a model of the family {} has none", weight.spec.name,
                family.model_type);
}

std::vector<results::TensorTarget> targets_of(const std::vector<Weight>& weights,
                                              const hf::Family& family, FolderWriter& writer,
                                              ByteProgress& progress) {
  std::vector<results::TensorTarget> targets;
  for (const Weight& weight : weights)
    targets.push_back({weight.spec, [&](std::size_t offset, std::span<const std::byte> from) {
                         if (weight.pieces.empty()) require_zero(weight, from, family);
                         write_pieces(weight, offset, from, writer);
                         progress.add(std::ssize(from));
                       }});
  return targets;
}

}  // namespace

std::string export_checkpoint(const ExportOptions& options) {
  const fs::path output = new_folder(options.output);  // before anything is read
  const results::Checkpoint checkpoint(find_checkpoint(options.checkpoint));
  const inputs::Deck deck =
      inputs::Deck::parse_stored(checkpoint.state().deck, checkpoint.path().string());
  const fs::path like = find_like(options, checkpoint.path());
  const hf::Family& family = choose_family(options, like, deck);
  const std::string config = hf::config_text(
      family, deck, like.empty() ? std::string() : hf::read_config_text(like.string()));
  const std::vector<Weight> weights =
      find_weights(checkpoint, family, deck, find_trunk(like, family));
  FolderWriter writer(output, entries_of(weights), options.shard_bytes);
  write_text(writer.part() / hf::kConfigFile, config);
  const std::vector<std::string> copied =
      like.empty() ? std::vector<std::string>() : side_files(like);
  for (const std::string& name : copied) copy_bytes(like / name, writer.part() / name);
  ByteProgress progress(writer.bytes());
  checkpoint.load(targets_of(weights, family, writer, progress), true);
  writer.commit();
  return fmt::format("{}: {} of family {}, step {}, in {} file{}{}{}\n", output.string(),
                     results::quantity(static_cast<double>(writer.bytes()), "B"), family.model_type,
                     checkpoint.state().step, writer.shards(), writer.shards() == 1 ? "" : "s",
                     copied.empty() ? "" : "; copied: ",
                     execution::printable(fmt::format("{}", fmt::join(copied, ", "))));
}

}  // namespace stowage::drivers
