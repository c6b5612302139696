#pragma once

#include <cstdint>

#include "execution/op.hpp"
#include "execution/parallel_for.hpp"
#include "kernels/matrix.hpp"

/// A group of the gated norm (gated_rmsnorm.hpp) that several ranks share: each has an equal part
/// of its columns, and the sums over them of all parts. Every rank adds those in the order of
/// parts, so all have the same mean.
namespace stowage::kernels {

/// What a rank of those that share groups knows of its own, its only one.
struct GroupShares {
  execution::View squares;      ///< (parts, n) accumulation dtype: gated_squares of each part
  execution::View projections;  ///< likewise gated_projections; of the gradient alone
  int first = 0;                ///< the first part of this rank's group …
  int count = 1;                ///< … of so many; 1: groups are whole, and nothing is read
};

/// squares (1, n) in the accumulation dtype: the sums of v^2 over the columns of this rank, with
/// v = y * silu(z). y (n, columns), z columns of a wider tensor.
void gated_squares(execution::Queue& queue, const execution::View& y, const Columns& z,
                   const execution::View& squares);

/// projections (1, n): the sums of dout * w * v. dout (n, columns), w (columns).
void gated_projections(execution::Queue& queue, const execution::View& dout,
                       const execution::View& y, const Columns& z, const execution::View& w,
                       const execution::View& projections);

execution::Cost gated_squares_cost(std::int64_t rows, std::int64_t width, execution::Dtype storage);
execution::Cost gated_projections_cost(std::int64_t rows, std::int64_t width,
                                       execution::Dtype storage);

/// GroupShares in memory; A is the accumulation type.
template <class A>
struct GroupSharePointers {
  const A* squares = nullptr;
  const A* projections = nullptr;
  std::int64_t rows = 0;
  int first = 0;
  int count = 1;

  STOWAGE_PORTABLE bool shared() const { return count > 1; }
  /// Of the parts of the group, one after the other.
  STOWAGE_PORTABLE A sum(const A* parts, std::int64_t row) const {
    A sum = parts[first * rows + row];
    for (int part = 1; part < count; ++part) sum += parts[(first + part) * rows + row];
    return sum;
  }
};

/// The operands of a sum over the columns of each row; no dout: that of squares.
template <class S>
struct GatedSums {
  std::int64_t rows = 0, width = 0;
  const S* dout = nullptr;
  const S* y = nullptr;
  const S* z = nullptr;
  std::int64_t z_stride = 0;
  const S* w = nullptr;
  execution::Accumulation<S>* sums = nullptr;
};

/// Host reference.
template <class S>
void gated_sums_ref(const GatedSums<S>& args);

}  // namespace stowage::kernels
