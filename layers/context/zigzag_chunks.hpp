#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>

#include "layers/recording/recorder.hpp"
#include "parallel/groups/ranks.hpp"

namespace stowage::layers {

/// Chunks of rows that ranks which share sequences exchange (zigzag). Of the 2 c chunks of all
/// tokens, rank r has 2r and 2r + 1 as its own tokens; here it gets r and 2c - 1 - r, an early and
/// a late one, so that causal attention takes all ranks as long.
class ZigzagChunks {
 public:
  using Pair = std::array<Tensor, 2>;  ///< (tokens / 2, width) each, the early one first

  explicit ZigzagChunks(std::shared_ptr<const parallel::RankGroup> group)
      : group_(std::move(group)) {}

  /// First token of the early and of the late chunk.
  /// @throws Error (exit 2) if a rank's tokens are no two chunks
  std::array<std::int64_t, 2> first_tokens(const Recorder& recorder) const;
  /// (tokens, width) rows of this rank's tokens to its two chunks.
  Pair to_chunks(Recorder& recorder, const std::string& name, Tensor rows) const;
  /// And back into y (tokens, width).
  void to_rows(Recorder& recorder, const std::string& name, const Pair& chunks, Tensor y) const;

 private:
  /// The chunks that a rank works on, and those of its own tokens, in rising order.
  std::array<int, 2> worked_on(int rank) const { return {rank, 2 * group_->size() - 1 - rank}; }
  static std::array<int, 2> owned(int rank) { return {2 * rank, 2 * rank + 1}; }
  /// The rank that works on a chunk.
  int worker(int chunk) const {
    return chunk < group_->size() ? chunk : 2 * group_->size() - 1 - chunk;
  }

  std::shared_ptr<const parallel::RankGroup> group_;
};

}  // namespace stowage::layers
