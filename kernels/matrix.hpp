#pragma once

#include <cstdint>
#include <type_traits>

#include "execution/tensor.hpp"

namespace stowage::kernels {

/// Columns [first, first + count) of a row-major tensor (rows, width), read or written in place.
struct Columns {
  execution::View view;
  std::int64_t first = 0;
  std::int64_t count = 0;

  std::int64_t rows() const { return view.extent(0); }
  std::int64_t width() const { return view.extent(1); }
};

/// All columns of a tensor (rows, width).
inline Columns all_columns(const execution::View& view) { return {view, 0, view.extent(1)}; }

/// A row-major matrix in memory: element (i, j) is data[i * stride + j]. It owns nothing.
///
/// This is how reference kernels and launchers take `Columns`: an address and a row stride.
template <class T>
struct Matrix {
  T* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;  ///< elements from a row to the next, at least `columns`

  constexpr T* row(std::int64_t i) const { return data + i * stride; }
  constexpr T& operator()(std::int64_t i, std::int64_t j) const { return data[i * stride + j]; }
  constexpr operator Matrix<const T>() const requires(!std::is_const_v<T>) {
    return {data, rows, columns, stride};
  }
};

}  // namespace stowage::kernels
