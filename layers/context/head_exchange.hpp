#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/elementwise/elementwise.hpp"
#include "layers/recording/recorder.hpp"
#include "parallel/groups/ranks.hpp"

namespace stowage::layers {

/// How ranks that share sequences exchange heads: between all heads of a rank's own tokens, and a
/// rank's share of the heads of all tokens (DeepSpeed-Ulysses, arXiv 2309.14509). Blocks of which
/// several ranks have the same share are handed out to each of them, and summed on the way back.
class HeadExchange {
 public:
  explicit HeadExchange(std::shared_ptr<const parallel::RankGroup> group)
      : group_(std::move(group)) {}

  /// (tokens, width) to (n, part_width): of each block this rank's part.
  /// @param module of the result, if it is saved
  Tensor to_sequence(Recorder& recorder, const std::string& name, Tensor x,
                     kernels::ColumnBlocks blocks, std::string_view module = {}) const;
  /// And back into y (tokens, width), of the dtype of `part`.
  void to_rows(Recorder& recorder, const std::string& name, Tensor part,
               kernels::ColumnBlocks blocks, Tensor y) const;

 private:
  std::shared_ptr<const parallel::RankGroup> group_;
};

}  // namespace stowage::layers
