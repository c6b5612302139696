#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "ctest/kernels/support.hpp"

/// Packed documents, and columns of wider tensors, for the tests of operators that take them.
namespace stowage::kernels::test {

inline std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

/// Documents of some lengths one after another, then a tail of tokens that belong to none.
struct Packed {
  explicit Packed(const std::vector<std::int64_t>& lengths, std::int64_t tail = 0)
      : tokens(std::accumulate(lengths.begin(), lengths.end(), tail)) {
    starts.push_back(0);
    for (const std::int64_t length : lengths) {
      document.insert(document.end(), at(length), static_cast<std::int32_t>(starts.size() - 1));
      starts.push_back(static_cast<std::int32_t>(document.size()));
    }
    document.insert(document.end(), at(tail), static_cast<std::int32_t>(starts.size() - 1));
  }

  std::int64_t documents() const { return static_cast<std::int64_t>(starts.size()) - 1; }
  Array cu_seqlens() const { return int32_array(starts); }
  Array seq_idx() const { return int32_array(document); }
  bool same(std::int64_t s, std::int64_t t) const { return document[at(s)] == document[at(t)]; }
  std::int64_t position(std::int64_t t) const { return t - starts[at(document[at(t)])]; }

  std::int64_t tokens;
  std::vector<std::int32_t> starts;    ///< cu_seqlens
  std::vector<std::int32_t> document;  ///< seq_idx
};

/// A tensor (rows, before + count + 2) that holds `values` (rows, count) in columns from `before`,
/// and NaN elsewhere: an operator that reads other columns is seen.
inline Array embedded(Dtype dtype, std::int64_t rows, std::int64_t count, std::int64_t before,
                      const Values& values) {
  const std::int64_t width = before + count + 2;
  Values wide(at(rows * width), std::numeric_limits<double>::quiet_NaN());
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < count; ++j)
      wide[at(i * width + before + j)] = values[at(i * count + j)];
  return {dtype, {rows, width}, wide};
}

/// The values of some columns; all others must still be poison.
inline Values columns_of(const Array& array, std::int64_t first, std::int64_t count) {
  const Values wide = array.values();
  const std::int64_t width = array.view().extent(1), rows = array.view().extent(0);
  Values values;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < width; ++j)
      if (j >= first && j < first + count)
        values.push_back(wide[at(i * width + j)]);
      else
        EXPECT_TRUE(std::isnan(wide[at(i * width + j)])) << "column " << j << " was written";
  return values;
}

/// The root of the mean squared difference: for values that may cancel to near 0, whose relative
/// error has no bound.
inline double rms_difference(const Values& a, const Values& b) {
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) squares += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(squares / static_cast<double>(a.size()));
}

/// Twice the values: what adding to themselves gives.
inline Values doubled(Values values) {
  for (double& value : values) value *= 2;
  return values;
}

}  // namespace stowage::kernels::test
