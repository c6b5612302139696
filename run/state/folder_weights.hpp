#pragma once

#include <memory>
#include <string>
#include <vector>

#include "inputs/deck/deck.hpp"
#include "inputs/huggingface/config.hpp"
#include "inputs/huggingface/model_folder.hpp"
#include "inputs/huggingface/names.hpp"
#include "results/checkpoint.hpp"

namespace stowage::run {

/// A published model: what its config.json says, and its weights.
struct PublishedModel {
  inputs::huggingface::Config config;
  std::unique_ptr<inputs::huggingface::ModelFolder> folder;
  std::string trunk;         ///< how the names of its trunk begin
  bool head_of_own = false;  ///< config.json says that the head is the embedding, its bytes do not
};

/// Opens a Hugging Face folder. If config.json ties the head to the embedding but the folder has
/// another head, `config` says untied: no tensor is lost.
/// @throws Error (exit 2) for a folder that cannot be read
PublishedModel open_model(const std::string& folder,
                          const inputs::huggingface::PassedOver& passed = {});

/// A Hugging Face folder as tensors of ours: nothing is copied until a range of one is read.
class FolderWeights {
 public:
  /// @throws Error (exit 2) if a tensor of the model is missing, has another shape or a dtype that
  /// we do not compute with, or if the folder has a tensor that the model has not
  FolderWeights(PublishedModel model, const inputs::Deck& deck);

  /// Every weight that the folder has, with the dtype of its files. They read from this object.
  std::vector<results::TensorSource> sources() const;
  const inputs::huggingface::ModelFolder& folder() const { return *model_.folder; }

 private:
  using Piece = inputs::huggingface::Piece;
  struct Weight {
    results::TensorSpec spec;
    std::vector<Piece> pieces;
  };
  execution::Dtype dtype_of(const std::vector<Piece>& pieces) const;
  /// @param further the model predicts further tokens
  void require_nothing_else(bool tied, bool further) const;
  void read(const Weight& weight, std::size_t offset, std::span<std::byte> to) const;

  PublishedModel model_;
  std::vector<Weight> weights_;
};

/// The way in which a folder's names begin. @throws Error (exit 2) if none of the family's fits
std::string trunk_of(const inputs::huggingface::ModelFolder& folder,
                     const inputs::huggingface::Family& family);

}  // namespace stowage::run
