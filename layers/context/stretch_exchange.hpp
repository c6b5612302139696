#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>

#include "layers/recording/recorder.hpp"
#include "parallel/ranks.hpp"

namespace stowage::layers {

/// How ranks that share sequences exchange stretches of rows. Of the 2 c stretches of all tokens,
/// rank r has 2r and 2r + 1 as its own tokens; here it gets r and 2c - 1 - r, an early and a late
/// one, so that causal attention takes all ranks as long (zigzag).
class StretchExchange {
 public:
  using Pair = std::array<Tensor, 2>;  ///< (tokens / 2, width) each, the early one first

  explicit StretchExchange(std::shared_ptr<const parallel::RankGroup> group)
      : group_(std::move(group)) {}

  /// First token of the early and of the late stretch.
  /// @throws Error (exit 2) if a rank's tokens are no two stretches
  std::array<std::int64_t, 2> first_tokens(const Recorder& recorder) const;
  /// (tokens, width) rows of this rank's tokens to its two stretches.
  Pair to_stretches(Recorder& recorder, const std::string& name, Tensor rows) const;
  /// And back into y (tokens, width).
  void to_rows(Recorder& recorder, const std::string& name, const Pair& stretches, Tensor y) const;

 private:
  /// The stretches that a rank works on, and those of its own tokens, in rising order.
  std::array<int, 2> worked_on(int rank) const { return {rank, 2 * group_->size() - 1 - rank}; }
  static std::array<int, 2> owned(int rank) { return {2 * rank, 2 * rank + 1}; }
  /// The rank that works on a stretch.
  int worker(int stretch) const {
    return stretch < group_->size() ? stretch : 2 * group_->size() - 1 - stretch;
  }

  std::shared_ptr<const parallel::RankGroup> group_;
};

}  // namespace stowage::layers
