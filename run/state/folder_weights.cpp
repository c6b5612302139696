#include "run/state/folder_weights.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "execution/error.hpp"
#include "layers/recording/config_section.hpp"
#include "run/state/weights.hpp"

namespace stowage::run {

using execution::throw_usage;
namespace hf = inputs::huggingface;

std::string trunk_of(const hf::ModelFolder& folder, const hf::Family& family) {
  for (const std::string_view trunk : family.trunks)
    for (const std::string& name : folder.names())
      if (name.starts_with(trunk)) return std::string(trunk);
  throw_usage("{}: no tensor's name begins with {}: no model of the family {}", folder.path(),
              fmt::join(family.trunks, " or "), family.model_type);
}

namespace {

constexpr std::int64_t kPieceBytes = std::int64_t{4} << 20;

/// What the family calls a tensor of ours that is outside of layers.
std::string their_name(const hf::Family& family, std::string_view ours, std::string_view trunk) {
  return hf::pieces(family, {}, ours, {1, 1}, trunk).front().name;
}

/// The config's own value of model.untie_embeddings, or nullptr: the family has no such choice.
inputs::Value* untied_of(hf::Config& config) {
  for (auto& [key, value] : config.keys)
    if (key == "model.untie_embeddings") return &value;
  return nullptr;
}

bool same_bytes(const hf::ModelFolder& folder, const hf::Entry& a, const hf::Entry& b) {
  if (a.dtype != b.dtype || a.shape != b.shape) return false;
  const hf::SafetensorsFile &of_a = folder.file_of(a.name), &of_b = folder.file_of(b.name);
  std::vector<std::byte> one, other;
  for (std::int64_t at = 0; at < a.bytes(); at += std::ssize(one)) {
    one.resize(static_cast<std::size_t>(std::min(kPieceBytes, a.bytes() - at)));
    other.resize(one.size());
    of_a.read(a, at, one);
    of_b.read(b, at, other);
    if (one != other) return false;
  }
  return true;
}

}  // namespace

PublishedModel open_model(const std::string& folder, const hf::PassedOver& passed) {
  PublishedModel model;
  model.config = hf::read_config(folder, passed);
  model.folder = std::make_unique<hf::ModelFolder>(folder);
  const hf::Family& family = *model.config.family;
  model.trunk = trunk_of(*model.folder, family);
  inputs::Value* untied = untied_of(model.config);
  if (untied == nullptr || std::get<bool>(*untied)) return model;
  const hf::Entry* head = model.folder->find(their_name(family, "output.weight", model.trunk));
  const hf::Entry* embedding =
      model.folder->find(their_name(family, "embedding.weight", model.trunk));
  model.head_of_own =
      head != nullptr && embedding != nullptr && !same_bytes(*model.folder, *head, *embedding);
  *untied = model.head_of_own;
  return model;
}

FolderWeights::FolderWeights(PublishedModel model, const inputs::Deck& deck)
    : model_(std::move(model)) {
  const hf::Family& family = *model_.config.family;
  const std::string& path = folder().path();
  const hf::ModelSizes sizes = hf::sizes_of(deck);
  for (results::TensorSpec& spec : weights_of(deck)) {
    std::vector<Piece> pieces = hf::pieces(family, sizes, spec.name, spec.shape, model_.trunk);
    if (pieces.empty()) continue;
    for (const Piece& piece : pieces) {
      const hf::Entry* entry = folder().find(piece.name);
      if (entry == nullptr)
        throw_usage("{}: has no tensor '{}' ({}), which is {} here", path, piece.name,
                    fmt::join(piece.shape, ", "), spec.name);
      if (entry->shape != piece.shape)
        throw_usage("{}: tensor '{}' is {}, {} of the deck's model needs ({})", path, piece.name,
                    entry->description(), spec.name, fmt::join(piece.shape, ", "));
    }
    spec.dtype = dtype_of(pieces);
    weights_.push_back({std::move(spec), std::move(pieces)});
  }
  require_nothing_else(inputs::read(deck, &layers::ModelConfig::tied_embeddings),
                       inputs::read(deck, &layers::ModelConfig::Mtp::depths) > 0);
}

execution::Dtype FolderWeights::dtype_of(const std::vector<Piece>& pieces) const {
  const hf::Entry& first = *folder().find(pieces.front().name);
  for (const Piece& piece : pieces)
    if (const hf::Entry& entry = *folder().find(piece.name); entry.dtype != first.dtype)
      throw_usage("{}: tensor '{}' is {}, '{}' is {}: they are one tensor here", folder().path(),
                  first.name, first.dtype, entry.name, entry.dtype);
  const execution::Dtype dtype = hf::dtype_of(first, folder().path());
  if (execution::epsilon(dtype) == 0)
    throw_usage("{}: tensor '{}' is {}; allowed: BF16, F32, F64", folder().path(), first.name,
                first.dtype);
  return dtype;
}

void FolderWeights::require_nothing_else(bool tied, bool further) const {
  const hf::Family& family = *model_.config.family;
  std::set<std::string> used;
  for (const Weight& weight : weights_)
    for (const Piece& piece : weight.pieces) used.insert(piece.name);
  const std::string head = their_name(family, "output.weight", model_.trunk);
  hf::Config config = model_.config;
  const inputs::Value* untied = untied_of(config);
  const bool leaves_further =
      !further && std::ranges::any_of(config.keys, [](const auto& key_and_value) {
        return key_and_value.first == "model.mtp_num_layers";
      });
  const bool repeats = untied != nullptr && !std::get<bool>(*untied);
  for (const std::string& name : folder().names()) {
    if (used.contains(name) || hf::is_left_out(family, name)) continue;
    if (leaves_further && name.starts_with(family.further)) continue;
    if (tied && name == head) {
      if (repeats) continue;  // the embedding once more
      throw_usage("{}: tensor '{}' is a head of its own; say model.untie_embeddings=true",
                  folder().path(), name);
    }
    throw_usage("{}: tensor '{}' {} is none of the model that config.json describes",
                folder().path(), name, folder().find(name)->description());
  }
}

std::vector<results::TensorSource> FolderWeights::sources() const {
  std::vector<results::TensorSource> all;
  for (const Weight& weight : weights_)
    all.push_back({weight.spec, [this, &weight](std::size_t offset, std::span<std::byte> to) {
                     read(weight, offset, to);
                   }});
  return all;
}

void FolderWeights::read(const Weight& weight, std::size_t offset, std::span<std::byte> to) const {
  const auto size = static_cast<std::int64_t>(execution::size_bytes(weight.spec.dtype));
  auto at = static_cast<std::int64_t>(offset);
  auto piece = std::upper_bound(
      weight.pieces.begin(), weight.pieces.end(), at,
      [&](std::int64_t byte, const Piece& p) { return byte < (p.begin + p.elements) * size; });
  for (; !to.empty(); ++piece) {
    STOWAGE_ASSERT(piece != weight.pieces.end(), "{} ends before byte {}", weight.spec.name,
                   at + std::ssize(to));
    const std::int64_t first = at - piece->begin * size;
    const auto count =
        static_cast<std::size_t>(std::min(piece->elements * size - first, std::ssize(to)));
    folder()
        .file_of(piece->name)
        .read(*folder().find(piece->name), piece->their_begin * size + first, to.first(count));
    to = to.subspan(count);
    at += static_cast<std::int64_t>(count);
  }
}

}  // namespace stowage::run
