#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "layers/model/model.hpp"
#include "layers/state/sharing.hpp"

namespace stowage::layers {

/// What a rank speaks for of the tensors that outlive a step. Of the ranks that have an element one
/// speaks for it: of a parameter or gradient, one whose shard is up to date. Together they speak
/// for the whole state once.
class Spoken {
 public:
  /// All outlive this.
  Spoken(const execution::PersistentLayout& layout, const Model& model, const Sharing& sharing);

  /// Elements of this rank's part of a tensor: one range or more, or none.
  std::vector<execution::Range> of(const std::string& tensor) const;

 private:
  /// As if ranks of the tensor group had nothing in common.
  execution::Range held(const std::string& tensor) const;

  const execution::PersistentLayout& layout_;
  const Model& model_;
  const Sharing& sharing_;
  /// By parameter: elements that another rank of the tensor group has, too, and speaks for.
  std::map<std::string, execution::Range> copies_;
};

/// Added to the begin of pieces of host memory, which lie apart from those of the device.
inline constexpr std::size_t kOnHost = std::size_t{1} << 63;

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
