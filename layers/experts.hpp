#pragma once

#include <memory>

#include "layers/router.hpp"

namespace stowage::layers {

/// The rows that this rank's experts work on, in the order of experts, then of tokens.
struct Routed {
  Tensor offsets;     ///< (experts of this rank + 1) int32
  Tensor token_row;   ///< (tokens, R) int32: row of a choice; -1: another rank's expert, or none
  Tensor row_weight;  ///< (tokens * R) accum
};

/// How ranks share the experts of a layer: each has E / size whole ones, and works on the rows of
/// all ranks that chose them. Rows travel by gathering and summing (SharedRows), so their number
/// is known beforehand, no row is dropped, and no count leaves the device.
class SharedExperts {
 public:
  /// @throws Error (exit 2) if the experts do not divide among the ranks
  SharedExperts(const ModelConfig& config, const parallel::Ranks& ranks);

  const SharedRows& rows() const { return rows_; }
  const Partition& partition() const { return partition_; }
  /// Tokens of all ranks.
  std::int64_t tokens(const Recorder& recorder) const { return recorder.rows() * rows_.size(); }

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
