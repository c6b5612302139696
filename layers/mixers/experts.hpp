#pragma once

#include <memory>
#include <string>

#include "layers/mixers/router.hpp"

namespace stowage::layers {

/// Capacity for what the experts of a rank get: `factor` times as many rows as if the load is
/// balanced, and `factor` times as many slots as a rank then wants of what it sends to another,
/// never more than there are; factor 0: all that there are.
/// @param tokens of a microbatch, of all ranks that share the sequences
kernels::ExpertCapacity expert_capacity(const ModelConfig& config, const parallel::Ranks& ranks,
                                        std::int64_t tokens, double factor);

/// Name of the demand so far, (3) int32: rows for this rank's experts; rows for its busiest expert;
/// slots for its busiest peer. In programs that ask for it, where ranks share experts.
inline constexpr const char* kDemand = "experts/most_rows";

/// The rows that this rank's experts work on, in the order of experts, then of tokens. Kept for
/// backward; never moved by a plan.
struct Routed {
  Tensor offsets;       ///< (experts of this rank + 1) int32
  Tensor token_row;     ///< (tokens, R) int32: row of a choice; -1: another rank's expert, or none
  Tensor row_weight;    ///< (room) accum
  Tensor received_row;  ///< (received, R) int32: the same of the rows that reach this rank
  Tensor row_slot;      ///< (rows, ranks) int32: slots that a row goes to; none without slots
};

/// How ranks share the experts of a layer: each has E / size whole ones, and works on the rows of
/// all ranks that chose them. All ranks learn all choices. Rows travel by gathering and summing
/// (SharedRows), or each goes once to every rank that has some of its experts, and comes back as
/// one sum (kernels/moe/slots.hpp). Either way it is known beforehand how many bytes travel, no
/// count leaves the device, and the results have the same bits. How many rows fall on a rank's
/// experts, and on a pair of ranks, is not known: there is room for Batch::expert_capacity.
/// If that is too little, kDemand says so, and the step must change nothing.
class SharedExperts {
 public:
  /// @throws Error (exit 2) if the experts do not divide among the ranks
  SharedExperts(const ModelConfig& config, const parallel::Ranks& ranks);

  const Partition& partition() const { return partition_; }
  int size() const { return rows_.size(); }
  const std::vector<int>& ranks() const { return group_->members(); }
  /// True if rows travel by slots: then they cannot before route().
  bool by_slots() const { return by_slots_; }
  /// Rows that reach this rank, or places for them.
  std::int64_t received(const Recorder& recorder) const;
  /// Rows that there is room for.
  std::int64_t capacity(const Recorder& recorder) const {
    return recorder.batch().expert_capacity.rows;
  }

  /// The choices of all ranks, for route().
  struct AllChoices {
    Tensor indices, weights;
  };
  AllChoices learn(Recorder& recorder, const Choices& choices) const;
  /// Rows for this rank's experts; completes the counts of `choices`.
  Routed route(Recorder& recorder, Choices& choices, const AllChoices& all) const;
  /// (rows, D) of each rank to what reaches this one, (received, D).
  Tensor send(Recorder& recorder, const std::string& name, Tensor mine, const Routed& routed) const;
  /// The same as they come, this rank's own first.
  AllRows send_each(Recorder& recorder, const std::string& name, Tensor mine,
                    const Routed& routed) const;
  /// And back: each rank's summand (received, D), on its way to the ranks that have its rows as
  /// `make` makes it (by slots: once it is whole, and `others` are the slots) …
  SharedRows::Summands send_back(Recorder& recorder, const std::string& name, Tensor summand,
                                 const SharedRows::MakeRows& make) const;
  /// … and this rank's rows of the sum, in rank order.
  /// @param mine where they are to be; none: a scratch tensor is made
  Tensor sum(Recorder& recorder, const SharedRows::Summands& summands, const Routed& routed,
             Tensor mine = {}) const;
  /// The gradient of each choice's weight, from that of the rows of all ranks' experts, on its way;
  /// sum_of_pairs() is (rows * R) accum in an order.
  struct WeightGradient {
    SharedRows::Summands values;
    Tensor token_row;  ///< where each of this rank's choices is in it
  };
  WeightGradient weight_gradient(Recorder& recorder, const Choices& choices, const Routed& routed,
                                 Tensor drow_weight) const;
  Tensor sum_of_pairs(Recorder& recorder, const WeightGradient& gradient) const {
    return rows_.sum(recorder, gradient.values);
  }

 private:
  /// Tokens of all ranks.
  std::int64_t tokens(const Recorder& recorder) const { return recorder.rows() * rows_.size(); }
  Routed sort(Recorder& recorder, Tensor indices, Tensor weights) const;
  /// Completes `routed` by the slots that rows go to and arrive in.
  /// @param indices this rank's  @param local of all ranks, -1 where the expert is not here
  void find_slots(Recorder& recorder, Tensor indices, Tensor local, Routed& routed) const;
  /// Rows of the experts below each, of all tokens of this rank's sequences.
  /// @param indices of the ranks that share the experts
  Tensor offsets_of_tokens(Recorder& recorder, Tensor indices) const;
  /// @param range of `indices` that counts
  void count(Recorder& recorder, const char* name, Tensor indices, execution::Range range,
             Tensor offsets) const;
  std::int64_t own() const { return experts_ / partition_.parts; }

  std::int64_t experts_;  ///< of all ranks
  int topk_;
  int tensor_size_;
  bool by_slots_;
  std::shared_ptr<const parallel::RankGroup> context_, group_;
  Partition partition_;
  SharedRows rows_;
};

}  // namespace stowage::layers
