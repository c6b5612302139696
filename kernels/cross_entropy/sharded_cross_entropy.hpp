#pragma once

#include "kernels/operator.hpp"

namespace stowage::kernels {

/// The fused head of linear_cross_entropy.hpp where ranks share the vocabulary: each has V of its
/// rows, from `first` on, and two operators work on the same rows of h, with an exchange of three
/// numbers a row between them, so that nothing as wide as the vocabulary travels. Targets are those
/// of the whole vocabulary, negative for a row that counts nothing.

/// logits = h w^T, and their stats: maximum, sum of exp(logit - maximum), and the target's logit, 0
/// where another rank has it.
struct ShardedLogits {
  static constexpr std::string_view kName = "sharded_logits";
  std::int64_t rows, vocabulary, width, first;
  execution::Dtype storage;

  template <class T>
  struct Operands {
    InRows<T> h;
    In<T> w;
    RowsOfType<T, const std::int32_t> targets;
    SumsOut<T> logits, stats;
  };
  void each(auto&& f, auto&... o) const {
    const execution::Dtype sums = execution::accumulation(storage);
    f(in("h", storage, {rows, width}), o.h...);
    f(in("w", storage, {vocabulary, width}), o.w...);
    f(in("targets", execution::Dtype::int32, {rows}), o.targets...);
    f(out("logits", sums, {rows, vocabulary}), o.logits...);
    f(out("stats", sums, {rows, 3}), o.stats...);
  }
  STOWAGE_OPERATOR_MEMBERS;
};

/// The losses of whole rows, the same on every rank, from the stats of all ranks, one rank's behind
/// the other's; hits and z-losses, if asked for, as LinearCrossEntropy has them. With `gradients`
/// logits become theirs, dh is this rank's summand, rounded, and dw is stored or, with
/// `accumulate`, added to.
struct ShardedCrossEntropy {
  static constexpr std::string_view kName = "sharded_cross_entropy";
  std::int64_t rows, vocabulary, width, first, ranks;
  execution::Dtype storage;
  bool gradients, accumulate;
  bool with_hits = false;
  double z_coeff = 0;  ///< 0: no z-loss

  template <class T>
  struct Operands {
    InRows<T> h;
    In<T> w;
    RowsOfType<T, const std::int32_t> targets;
    SumsIn<T> stats;
    SumsOut<T> logits;
    RowsOfType<T, Sums> losses;
    SumsIn<T> scale;
    OutRows<T> dh;
    SumsOut<T> dw;
    RowsOfType<T, Sums> hits, z_losses;
  };
  void each(auto&& f, auto&... o) const {
    const execution::Dtype sums = execution::accumulation(storage);
    f(in("h", storage, {rows, width}), o.h...);
    f(in("w", storage, {vocabulary, width}), o.w...);
    f(in("targets", execution::Dtype::int32, {rows}), o.targets...);
    f(in("stats", sums, {ranks * rows, 3}), o.stats...);
    f(sum("logits", true, sums, {rows, vocabulary}), o.logits...);
    f(out("losses", sums, {rows}), o.losses...);
    f(in("scale", sums, {1}).when(gradients), o.scale...);
    f(out("dh", storage, {rows, width}).when(gradients), o.dh...);
    f(sum("dw", accumulate, sums, {vocabulary, width}).when(gradients), o.dw...);
    f(out("hits", sums, {rows}).when(with_hits), o.hits...);
    f(out("z_losses", sums, {rows}).when(z_coeff > 0), o.z_losses...);
  }
  STOWAGE_OPERATOR_MEMBERS;
};

/// Rows that go through both operators at once: few enough for their logits, many enough for the
/// products to be efficient.
std::int64_t sharded_cross_entropy_chunk(std::int64_t rows, std::int64_t vocabulary);

}  // namespace stowage::kernels
