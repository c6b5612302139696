#pragma once

#include "kernels/operator.hpp"

namespace stowage::kernels {

/// sums[s] = {sum of the losses, number of tokens} over the tokens that are of source s, in a fixed
/// order: stored or, with `accumulate`, added to. A token of a negative source counts in none.
struct SourceLosses {
  static constexpr std::string_view kName = "source_losses";
  std::int64_t tokens, sources;
  execution::Dtype storage;
  bool accumulate;

  template <class T>
  struct Operands {
    RowsOfType<T, const Sums> losses;
    RowsOfType<T, const std::int32_t> of;
    RowsOfType<T, Sums> sums;
  };
  void each(auto&& f, auto&... o) const {
    const execution::Dtype dtype = execution::accumulation(storage);
    f(in("losses", dtype, {tokens}), o.losses...);
    f(in("of", execution::Dtype::int32, {tokens}), o.of...);
    f(sum("sums", accumulate, dtype, {2 * sources}), o.sums...);
  }
  STOWAGE_OPERATOR_MEMBERS;
};

}  // namespace stowage::kernels
