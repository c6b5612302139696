#include "drivers/common/folder_weights.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "drivers/common/weights.hpp"
#include "execution/error.hpp"

namespace stowage::drivers {

using execution::throw_usage;
namespace hf = inputs::huggingface;

std::string trunk_of(const hf::ModelFolder& folder, const hf::Family& family) {
  for (const std::string_view trunk : family.trunks)
    for (const std::string& name : folder.names())
      if (name.starts_with(trunk)) return std::string(trunk);
  throw_usage("{}: no tensor's name begins with {}: no model of the family {}", folder.path(),
              fmt::join(family.trunks, " or "), family.model_type);
}

FolderWeights::FolderWeights(const std::string& folder, const hf::Family& family,
                             const inputs::Deck& deck)
    : folder_(std::make_unique<hf::ModelFolder>(folder)), trunk_(trunk_of(*folder_, family)) {
  const hf::ModelSizes sizes = hf::sizes_of(deck);
  for (results::TensorSpec& spec : weights_of(deck)) {
    std::vector<Piece> pieces = hf::pieces(family, sizes, spec.name, spec.shape, trunk_);
    if (pieces.empty()) continue;
    for (const Piece& piece : pieces) {
      const hf::Entry* entry = folder_->find(piece.name);
      if (entry == nullptr)
        throw_usage("{}: has no tensor '{}' ({}), which is {} here", folder, piece.name,
                    fmt::join(piece.shape, ", "), spec.name);
      if (entry->shape != piece.shape)
        throw_usage("{}: tensor '{}' is {}, {} of the deck's model needs ({})", folder, piece.name,
                    entry->description(), spec.name, fmt::join(piece.shape, ", "));
    }
    spec.dtype = dtype_of(pieces);
    weights_.push_back({std::move(spec), std::move(pieces)});
  }
  require_nothing_else(family, !deck.get<bool>("model.untie_embeddings"));
}

execution::Dtype FolderWeights::dtype_of(const std::vector<Piece>& pieces) const {
  const hf::Entry& first = *folder_->find(pieces.front().name);
  for (const Piece& piece : pieces)
    if (const hf::Entry& entry = *folder_->find(piece.name); entry.dtype != first.dtype)
      throw_usage("{}: tensor '{}' is {}, '{}' is {}: they are one tensor here", folder_->path(),
                  first.name, first.dtype, entry.name, entry.dtype);
  const execution::Dtype dtype = hf::dtype_of(first, folder_->path());
  if (execution::epsilon(dtype) == 0)
    throw_usage("{}: tensor '{}' is {}; allowed: BF16, F32, F64", folder_->path(), first.name,
                first.dtype);
  return dtype;
}

void FolderWeights::require_nothing_else(const hf::Family& family, bool tied) const {
  std::set<std::string> used;
  for (const Weight& weight : weights_)
    for (const Piece& piece : weight.pieces) used.insert(piece.name);
  for (const std::string& name : folder_->names()) {
    if (used.contains(name) || hf::is_left_out(family, name)) continue;
    if (tied && name == "lm_head.weight") continue;  // the embedding once more
    throw_usage("{}: tensor '{}' {} is none of the model that config.json describes",
                folder_->path(), name, folder_->find(name)->description());
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
    folder_->file_of(piece->name).read(*folder_->find(piece->name), first, to.first(count));
    to = to.subspan(count);
    at += static_cast<std::int64_t>(count);
  }
}

}  // namespace stowage::drivers
