#pragma once

#include <memory>

#include "layers/router.hpp"

namespace stowage::layers {

/// Rows that the experts of a rank have room for: `share` times as many as they get if the load is
/// balanced, never more than there are; 0: all that there are.
/// @param tokens of a microbatch, of all ranks that share the sequences
std::int64_t expert_room(const ModelConfig& config, const parallel::Ranks& ranks,
                         std::int64_t tokens, double share);

/// Name of the most rows that this rank's experts were to get so far, (2) int32: of all, and of the
/// busiest one; in programs that ask for them, where ranks share experts.
inline constexpr const char* kMostRows = "experts/most_rows";

/// The rows that this rank's experts work on, in the order of experts, then of tokens.
struct Routed {
  Tensor offsets;     ///< (experts of this rank + 1) int32
  Tensor token_row;   ///< (tokens, R) int32: row of a choice; -1: another rank's expert, or none
  Tensor row_weight;  ///< (room) accum
};

/// How ranks share the experts of a layer: each has E / size whole ones, and works on the rows of
/// all ranks that chose them. Rows travel by gathering and summing (SharedRows), so how many do is
/// known beforehand, and no count leaves the device. How many fall on a rank's experts is not:
/// there is room for Batch::expert_rows, and where that is too little, kMostRows says so; such a
/// step must change nothing.
class SharedExperts {
 public:
  /// @throws Error (exit 2) if the experts do not divide among the ranks
  SharedExperts(const ModelConfig& config, const parallel::Ranks& ranks);

  const SharedRows& rows() const { return rows_; }
  const Partition& partition() const { return partition_; }
  /// Tokens of all ranks.
  std::int64_t tokens(const Recorder& recorder) const { return recorder.rows() * rows_.size(); }
  /// Rows that there is room for.
  std::int64_t room(const Recorder& recorder) const { return recorder.batch().expert_rows; }

  /// Rows for this rank's experts; completes the counts of `choices`.
  Routed route(Recorder& recorder, Choices& choices) const;
  /// The gradient of each choice's weight, from that of the rows of all ranks' experts.
  /// @return (rows * R) accum in an order, and where each of this rank's choices is in it
  struct WeightGradient {
    Tensor values, token_row;
  };
  WeightGradient weight_gradient(Recorder& recorder, const Choices& choices, const Routed& routed,
                                 Tensor drow_weight) const;

 private:
  Routed sort(Recorder& recorder, Tensor indices, Tensor weights) const;
  /// Rows of the experts below each, of all tokens of this rank's sequences.
  /// @param indices of the ranks that share the experts
  Tensor offsets_of_tokens(Recorder& recorder, Tensor indices) const;
  /// @param range of `indices` that counts
  void count(Recorder& recorder, const char* name, Tensor indices, execution::Range range,
             Tensor offsets) const;

  std::int64_t experts_;  ///< of all ranks
  int topk_;
  int tensor_size_;
  std::shared_ptr<const parallel::RankGroup> context_;
  Partition partition_;
  SharedRows rows_;
};

}  // namespace stowage::layers
