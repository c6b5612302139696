#pragma once

#include "kernels/operator.hpp"

namespace stowage::kernels {

/// sum += the mean squares of rows that a RMSNorm has read, which its rstd tells:
///
///   mean(x_r^2) = 1 / rstd_r^2 - eps, at least 0
///
/// added up over rows in a fixed order. No row is read again.
struct MeanSquares {
  static constexpr std::string_view kName = "mean_squares";
  std::int64_t rows;
  execution::Dtype storage;
  double eps;

  template <class T>
  struct Operands {
    SumsIn<T> rstd;
    RowsOfType<T, Sums> total;
  };
  void each(auto&& f, auto&... o) const {
    const execution::Dtype dtype = execution::accumulation(storage);
    f(in("rstd", dtype, {rows}), o.rstd...);
    f(sum("total", true, dtype, {1}), o.total...);
  }
  STOWAGE_OPERATOR_MEMBERS;
};

}  // namespace stowage::kernels
