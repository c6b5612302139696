#include "run/export/model_export.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <set>

#include "execution/error.hpp"
#include "execution/printable.hpp"
#include "results/checkpoint.hpp"
#include "results/format.hpp"
#include "run/export/folder_writer.hpp"
#include "run/export/side_files.hpp"
#include "run/state/folder_weights.hpp"
#include "run/state/weights.hpp"

namespace stowage::run {
namespace {

namespace fs = std::filesystem;
namespace hf = inputs::huggingface;
using execution::throw_usage;

/// The published folder that the output resembles: given, kept by an import beside checkpoints, or
/// none.
fs::path find_like(const std::string& given, const fs::path& folder) {
  if (!given.empty()) return given;
  const fs::path kept = folder / kSideFolder;
  return fs::exists(kept / hf::kConfigFile) ? kept : fs::path();
}

const hf::Family& choose_family(const std::string& given, const fs::path& like,
                                const inputs::Deck& deck) {
  if (!given.empty()) return hf::family_of(given, "--family");
  return like.empty() ? hf::family_of(deck) : hf::read_family(like.string());
}

std::string config_text(const hf::Family& family, const fs::path& like, const inputs::Deck& deck) {
  return hf::config_text(family, deck,
                         like.empty() ? std::string() : hf::read_config_text(like.string()));
}

/// How names begin in the folder of `like`, where it has weights.
std::string find_trunk(const fs::path& like, const hf::Family& family) {
  const bool weights =
      !like.empty() && (fs::exists(like / hf::kSingleFile) || fs::exists(like / hf::kIndexFile));
  return weights ? trunk_of(hf::ModelFolder(like.string()), family)
                 : std::string(family.trunks.front());
}

/// A tensor of ours and what the folder has of it.
struct Weight {
  results::TensorSpec spec;  ///< as the checkpoint stores it
  execution::Dtype dtype;    ///< in the folder
  std::vector<hf::Piece> pieces;
};

std::vector<Weight> find_weights(const results::Checkpoint& checkpoint, const hf::Family& family,
                                 const inputs::Deck& deck, const std::string& trunk,
                                 Weights which) {
  std::set<std::string> averaged;
  if (which == Weights::ema)
    for (const results::TensorSpec& parameter : parameters_of(deck))
      averaged.insert(parameter.name);
  std::map<std::string, results::TensorSpec> held;
  for (const results::TensorSpec& spec : checkpoint.tensors()) held[spec.name] = spec;
  std::vector<Weight> weights;
  for (const results::TensorSpec& wanted : weights_of(deck)) {
    const bool average = averaged.contains(wanted.name);
    const std::string name = average ? layers::state_name(layers::kEma, wanted.name) : wanted.name;
    const auto found = held.find(name);
    std::vector<hf::Piece> pieces =
        hf::pieces(family, hf::sizes_of(deck), wanted.name, wanted.shape, trunk);
    if (found == held.end() && pieces.empty()) continue;  // an imported family has none of it
    if (found == held.end() || found->second.shape != wanted.shape)
      throw_usage("{}: has no tensor '{}' of shape ({}){}", checkpoint.path().string(), name,
                  fmt::join(wanted.shape, ", "), average ? "; optim.ema_decay keeps averages" : "");
    const execution::Dtype stored = found->second.dtype;
    weights.push_back({found->second, average ? wanted.dtype : stored, std::move(pieces)});
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
        entries.push_back({piece.name, std::string(hf::name_of(weight.dtype)), piece.shape});
  return entries;
}

/// Bytes of one of ours, of the folder's dtype, into those of theirs that they lie in.
void write_pieces(const Weight& weight, std::size_t offset, std::span<const std::byte> from,
                  FolderWriter& writer) {
  const auto size = static_cast<std::int64_t>(execution::size_bytes(weight.dtype));
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

}  // namespace

void require_exportable(const inputs::Deck& deck, const std::string& like, const fs::path& folder) {
  const fs::path found = find_like(like, folder);
  (void)config_text(choose_family({}, found, deck), found, deck);
}

struct ModelExport::State {
  State(const fs::path& path, const ExportOptions& options)
      : output(options.output),
        checkpoint(path),
        deck(inputs::Deck::parse_stored(checkpoint.state().deck, checkpoint.path().string())),
        like(find_like(options.like, checkpoint.path().parent_path())),
        family(choose_family(options.family, like, deck)),
        config(config_text(family, like, deck)),
        which(options.weights),
        weights(find_weights(checkpoint, family, deck, find_trunk(like, family), which)),
        side(like.empty() ? std::vector<std::string>() : side_files(like)),
        writer(output, entries_of(weights), options.shard_bytes, options.keeps) {}

  fs::path output;
  results::Checkpoint checkpoint;
  inputs::Deck deck;
  fs::path like;
  const hf::Family& family;
  std::string config;
  Weights which;
  std::vector<Weight> weights;
  std::vector<std::string> side;  ///< names of files beside weights
  FolderWriter writer;
};

ModelExport::ModelExport(const fs::path& checkpoint, const ExportOptions& options)
    : state_(std::make_unique<State>(checkpoint, options)) {}

ModelExport::~ModelExport() = default;

std::int64_t ModelExport::bytes() const { return state_->writer.bytes(); }

void ModelExport::write(const std::function<void(std::int64_t)>& progress,
                        const std::atomic<bool>& abandoned) {
  State& s = *state_;
  write_text(s.writer.part() / hf::kConfigFile, s.config);
  for (const std::string& name : s.side) copy_bytes(s.like / name, s.writer.part() / name);
  for (const Weight& weight : s.weights) {
    const auto write = [&](std::size_t offset, std::span<const std::byte> from) {
      if (weight.pieces.empty()) require_zero(weight, from, s.family);
      const std::vector<std::byte> rounded = converted(from, weight.spec.dtype, weight.dtype);
      const std::size_t first =
          offset / execution::size_bytes(weight.spec.dtype) * execution::size_bytes(weight.dtype);
      write_pieces(weight, first, rounded, s.writer);
      progress(std::ssize(rounded));
    };
    if (abandoned) return;
    const std::array<results::TensorTarget, 1> target = {{{weight.spec, write}}};
    s.checkpoint.load(target, true);
  }
  s.writer.commit();
}

std::string ModelExport::text() const {
  const State& s = *state_;
  const FolderWriter& writer = s.writer;
  return fmt::format("{}: {} of family {}, step {}{}, in {} file{}{}{}", s.writer.path().string(),
                     results::quantity(static_cast<double>(writer.bytes()), "B"),
                     s.family.model_type, s.checkpoint.state().step,
                     s.which == Weights::ema ? ", averaged weights" : "", writer.shards(),
                     writer.shards() == 1 ? "" : "s", s.side.empty() ? "" : "; copied: ",
                     execution::printable(fmt::format("{}", fmt::join(s.side, ", "))));
}

}  // namespace stowage::run
