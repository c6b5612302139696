#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "layers/model.hpp"
#include "layers/sharing.hpp"

namespace stowage::layers {

/// Elements of this rank's part of a tensor that outlives a step that it speaks for; of the ranks
/// that have an element one speaks for it: of a parameter or gradient, one whose shard is up to
/// date. Together they speak for the whole state once.
execution::Range spoken_for(const std::string& tensor, const execution::PersistentLayout& layout,
                            const Model& model, const Sharing& sharing);

/// A piece of memory that is copied aside; `begin` counts from anywhere, the same for all.
struct CopiedPiece {
  std::size_t begin = 0, bytes = 0;
};

/// Where pieces of memory lie in one copy of them all. Pieces that are close in memory stay so, and
/// are copied as one.
struct CopyLayout {
  struct Span {
    std::size_t from, to, bytes;
  };

  explicit CopyLayout(std::span<const CopiedPiece> pieces);

  std::vector<std::size_t> at;  ///< of each piece in the copy
  std::vector<Span> spans;
  std::size_t bytes = 0;  ///< of the copy
};

/// Bytes of a copy of all that this rank speaks for but the gradients: of what a checkpoint holds.
std::size_t state_copy_bytes(const execution::PersistentLayout& layout, const Model& model,
                             const Sharing& sharing);

}  // namespace stowage::layers
