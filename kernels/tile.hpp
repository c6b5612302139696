#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/blas.hpp"
#include "kernels/matrix.hpp"

namespace stowage::kernels {

/// Rows [row, row + rows) and columns [column, column + columns) of a matrix, in place.
template <class T>
constexpr Matrix<T> block(const Matrix<T>& m, std::int64_t row, std::int64_t column,
                          std::int64_t rows, std::int64_t columns) {
  return {m.row(row) + column, rows, columns, m.stride};
}

/// A small dense row-major matrix of the accumulation type that owns its elements: what a reference
/// kernel copies its operands to, multiplies, and rounds its results from. Its room is for the
/// largest extents; resize() sets those in use and never allocates.
template <class A>
class Tile {
 public:
  Tile(std::int64_t rows, std::int64_t columns)
      : data_(static_cast<std::size_t>(rows * columns)), rows_(rows), columns_(columns) {}

  void resize(std::int64_t rows, std::int64_t columns) {
    rows_ = rows;
    columns_ = columns;
  }
  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  std::int64_t size() const { return rows_ * columns_; }
  A* data() { return data_.data(); }
  const A* data() const { return data_.data(); }
  A* row(std::int64_t i) { return data_.data() + i * columns_; }
  const A* row(std::int64_t i) const { return data_.data() + i * columns_; }

  /// The elements of a matrix times `factor`; takes its extents.
  template <class S>
  void load(const Matrix<S>& from, A factor = A{1}) {
    resize(from.rows, from.columns);
    for (std::int64_t i = 0; i < rows_; ++i) {
      const S* source = from.row(i);
      A* to = row(i);
      for (std::int64_t j = 0; j < columns_; ++j) to[j] = static_cast<A>(source[j]) * factor;
    }
  }

  void set_zero(std::int64_t rows, std::int64_t columns) {
    resize(rows, columns);
    for (std::int64_t i = 0; i < size(); ++i) data()[i] = A{0};
  }

  /// Each row multiplied by its factor.
  void scale_rows(const A* factors) {
    for (std::int64_t i = 0; i < rows_; ++i)
      for (std::int64_t j = 0; j < columns_; ++j) row(i)[j] *= factors[i];
  }

  /// Rounds the elements into a matrix of the same extents.
  template <class S>
  void store(const Matrix<S>& to) const {
    for (std::int64_t i = 0; i < rows_; ++i)
      for (std::int64_t j = 0; j < columns_; ++j) to(i, j) = static_cast<S>(row(i)[j]);
  }

 private:
  std::vector<A> data_;
  std::int64_t rows_, columns_;
};

/// c = op(a) op(b), or c += when `accumulate`, on the calling thread. Without it c takes the
/// extents of the product. a and b are Tile or Matrix, of float or of double.
template <class A, class Left, class Right>
void multiply(Transpose transpose_a, const Left& a, Transpose transpose_b, const Right& b,
              Tile<A>& c, bool accumulate = false);

namespace detail {

template <class A>
Matrix<const A> as_matrix(const Tile<A>& tile) {
  return {tile.data(), tile.rows(), tile.columns(), tile.columns()};
}
template <class A>
Matrix<const A> as_matrix(const Matrix<A>& matrix) {
  return matrix;
}

}  // namespace detail

template <class A, class Left, class Right>
void multiply(Transpose transpose_a, const Left& a, Transpose transpose_b, const Right& b,
              Tile<A>& c, bool accumulate) {
  const Matrix<const A> left = detail::as_matrix(a), right = detail::as_matrix(b);
  const bool ta = transpose_a == Transpose::yes, tb = transpose_b == Transpose::yes;
  const std::int64_t m = ta ? left.columns : left.rows, k = ta ? left.rows : left.columns;
  const std::int64_t n = tb ? right.rows : right.columns;
  if (!accumulate) c.resize(m, n);
  gemm<A>(transpose_a, transpose_b, m, n, k, A{1}, left.data, left.stride, right.data, right.stride,
          accumulate ? A{1} : A{0}, c.data(), c.columns());
}

}  // namespace stowage::kernels
