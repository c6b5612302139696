#pragma once

#include <cstdint>

#include "execution/parallel_for.hpp"
#include "kernels/operator.hpp"

/// A group of the gated norm (gated_rmsnorm.hpp) that several ranks share: each has an equal part
/// of its columns, and the sums over them of all parts. Every rank adds those in the order of
/// parts, so all have the same mean.
namespace stowage::kernels {

/// The sums of all parts, in memory, and which of them are of this rank's group; A is the
/// accumulation type.
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

/// Which parts of which group a rank has, its only one.
struct GroupShares {
  int parts = 1;  ///< of all groups; sums of each part are operands if groups are shared
  int first = 0;  ///< the first part of this rank's group …
  int count = 1;  ///< … of so many; 1: groups are whole

  constexpr bool shared() const { return count > 1; }
  /// With the sums of all parts, which are (parts, rows); projections are the gradient's alone.
  template <class A>
  GroupSharePointers<A> pointers(std::int64_t rows, const A* squares,
                                 const A* projections = nullptr) const {
    if (!shared()) return {};
    return {squares, projections, rows, first, count};
  }
};

/// What both sums over the columns of each row work on; without dout it is that of squares.
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

/// squares (1, n): the sums of v^2 over the columns of this rank, with v = y * silu(z). z are
/// columns of a wider tensor.
struct GatedSquares {
  static constexpr std::string_view kName = "gated_squares";
  std::int64_t rows, width;
  execution::Dtype storage;

  template <class T>
  struct Operands {
    In<T> y;
    InColumns<T> z;
    SumsOut<T> squares;
  };
  void each(auto&& f, auto&... o) const {
    f(in("y", storage, {rows, width}), o.y...);
    f(in("z", storage, {rows, width}), o.z...);
    f(out("squares", execution::accumulation(storage), {1, rows}), o.squares...);
  }
  template <class S>
  GatedSums<S> sums(const Operands<Pointers<S>>& o) const {
    return {.rows = rows,
            .width = width,
            .y = o.y,
            .z = o.z.data,
            .z_stride = o.z.stride,
            .sums = o.squares};
  }
  STOWAGE_OPERATOR_MEMBERS;
};

/// projections (1, n): the sums of dout * w * v.
struct GatedProjections {
  static constexpr std::string_view kName = "gated_projections";
  std::int64_t rows, width;
  execution::Dtype storage;

  template <class T>
  struct Operands {
    In<T> dout, y;
    InColumns<T> z;
    In<T> w;
    SumsOut<T> projections;
  };
  void each(auto&& f, auto&... o) const {
    f(in("dout", storage, {rows, width}), o.dout...);
    f(in("y", storage, {rows, width}), o.y...);
    f(in("z", storage, {rows, width}), o.z...);
    f(in("w", storage, {width}), o.w...);
    f(out("projections", execution::accumulation(storage), {1, rows}), o.projections...);
  }
  template <class S>
  GatedSums<S> sums(const Operands<Pointers<S>>& o) const {
    return {.rows = rows,
            .width = width,
            .dout = o.dout,
            .y = o.y,
            .z = o.z.data,
            .z_stride = o.z.stride,
            .w = o.w,
            .sums = o.projections};
  }
  STOWAGE_OPERATOR_MEMBERS;
};

}  // namespace stowage::kernels
