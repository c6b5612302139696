#pragma once

#include "kernels/operator.hpp"

namespace stowage::kernels {

/// sums = {sum of the losses, number of counted tokens}, over tokens with target >= 0, in a fixed
/// order: stored or, with `accumulate`, added to.
struct LossSum {
  static constexpr std::string_view kName = "loss_sum";
  std::int64_t tokens;
  execution::Dtype storage;
  bool accumulate;

  template <class T>
  struct Operands {
    RowsOfType<T, const Sums> losses;
    RowsOfType<T, const std::int32_t> targets;
    RowsOfType<T, Sums> sums;
  };
  void each(auto&& f, auto&... o) const {
    const execution::Dtype dtype = execution::accumulation(storage);
    f(in("losses", dtype, {tokens}), o.losses...);
    f(in("targets", execution::Dtype::int32, {tokens}), o.targets...);
    f(sum("sums", accumulate, dtype, {2}), o.sums...);
  }
  STOWAGE_OPERATOR_MEMBERS;
};

}  // namespace stowage::kernels
