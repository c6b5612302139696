#pragma once

#include <memory>
#include <string>
#include <vector>

#include "inputs/deck/deck.hpp"
#include "inputs/huggingface/config.hpp"
#include "inputs/huggingface/model_folder.hpp"
#include "inputs/huggingface/names.hpp"
#include "results/checkpoint.hpp"

namespace stowage::drivers {

/// A Hugging Face folder as tensors of ours: nothing is copied until a range of one is read.
class FolderWeights {
 public:
  /// @throws Error (exit 2) if a tensor of the model is missing, has another shape or a dtype that
  /// we do not compute with, or if the folder has a tensor that the model has not
  FolderWeights(const std::string& folder, const inputs::huggingface::Family& family,
                const inputs::Deck& deck);

  /// Every weight that the folder has, with the dtype of its files. They read from this object.
  std::vector<results::TensorSource> sources() const;
  /// How the names of its trunk begin.
  const std::string& trunk() const { return trunk_; }
  const inputs::huggingface::ModelFolder& folder() const { return *folder_; }

 private:
  using Piece = inputs::huggingface::Piece;
  struct Weight {
    results::TensorSpec spec;
    std::vector<Piece> pieces;
  };
  execution::Dtype dtype_of(const std::vector<Piece>& pieces) const;
  void require_nothing_else(const inputs::huggingface::Family& family, bool tied) const;
  void read(const Weight& weight, std::size_t offset, std::span<std::byte> to) const;

  std::unique_ptr<inputs::huggingface::ModelFolder> folder_;
  std::string trunk_;
  std::vector<Weight> weights_;
};

/// The way in which a folder's names begin. @throws Error (exit 2) if none of the family's fits
std::string trunk_of(const inputs::huggingface::ModelFolder& folder,
                     const inputs::huggingface::Family& family);

}  // namespace stowage::drivers
