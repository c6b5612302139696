#pragma once

#include <cstdint>

#include "execution/op.hpp"

namespace stowage::kernels {

/// The fused head of linear_cross_entropy.hpp where ranks share the vocabulary: each has V of its
/// rows, from `first` on, and two operators work on the same rows of h, with an exchange of three
/// numbers a row between them, so that nothing as wide as the vocabulary travels.
///
/// h, dh (rows, D) and losses, targets (rows) may be ranges of longer tensors; w (V, D); logits
/// (rows, V) accum. Targets are those of the whole vocabulary, negative for a row that counts
/// nothing.

/// logits = h w^T, and their stats (rows, 3) accum: maximum, sum of exp(logit - maximum), and the
/// target's logit, 0 where another rank has it.
void sharded_logits(execution::Queue& queue, const execution::View& h, const execution::View& w,
                    const execution::View& targets, std::int64_t first,
                    const execution::View& logits, const execution::View& stats);

struct ShardedCrossEntropyOperands {
  execution::View h, w, targets;
  execution::View stats;      ///< (ranks, rows, 3), merged in the order of ranks
  execution::View logits;     ///< becomes the gradient
  execution::View losses;     ///< of whole rows, the same on every rank
  execution::View hits = {};  ///< if asked for: as linear_cross_entropy_loss has them
  execution::View scale;      ///< absent: the losses alone; what follows is absent too
  execution::View dh;         ///< this rank's summand, rounded
  execution::View dw;         ///< stored or, with `accumulate`, added to
};

/// The losses, and the gradients of this rank's part, from the stats of all ranks.
void sharded_cross_entropy(execution::Queue& queue, const ShardedCrossEntropyOperands& operands,
                           std::int64_t first, bool accumulate);

execution::Cost sharded_logits_cost(std::int64_t rows, std::int64_t vocabulary, std::int64_t width,
                                    execution::Dtype storage);
/// @param gradients false: the losses alone
execution::Cost sharded_cross_entropy_cost(std::int64_t rows, std::int64_t vocabulary,
                                           std::int64_t width, execution::Dtype storage,
                                           bool gradients, bool accumulate);

/// Rows that go through both operators at once: few enough for their logits, many enough for the
/// products to be efficient.
std::int64_t sharded_cross_entropy_chunk(std::int64_t rows, std::int64_t vocabulary);

}  // namespace stowage::kernels
