#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ctest/kernels/support.hpp"
#include "kernels/grouped_mlp/grouped_mlp.hpp"

/// What the tests of the products with activation share, on the host and on a GPU.
namespace stowage::kernels::test {

inline constexpr Activation kKinds[] = {Activation::squared_relu, Activation::swiglu};

/// Rows of each expert, rows of none; D wide, F between.
struct MlpCase {
  std::vector<std::int32_t> counts;
  std::int64_t spare, width, columns;

  std::int64_t experts() const { return static_cast<std::int64_t>(counts.size()); }
  std::int64_t valid() const { return std::accumulate(counts.begin(), counts.end(), 0); }
  std::int64_t rows() const { return valid() + spare; }
  std::vector<std::int32_t> offsets() const {
    std::vector<std::int32_t> sums{0};
    for (const std::int32_t count : counts) sums.push_back(sums.back() + count);
    return sums;
  }
};

/// Operands and results of the products with activation, in host arrays; results are poisoned.
struct MlpProblem {
  MlpProblem(const MlpCase& c, Activation kind, Dtype storage, Random& random)
      : hidden(activation_width(kind, c.columns)),
        x(storage, {c.rows(), c.width}, random.normal(c.rows() * c.width)),
        dy(storage, {c.rows(), c.width}, random.normal(c.rows() * c.width)),
        w1(storage, {c.experts(), hidden, c.width}, random.normal(c.experts() * hidden * c.width)),
        w2(storage, {c.experts(), c.width, c.columns},
           random.normal(c.experts() * c.width * c.columns)),
        offsets(int32_array(c.offsets())),
        row_weight(execution::accumulation(storage), {c.rows()}, random.uniform(c.rows(), 0, 1)),
        h(storage, {c.rows(), hidden}),
        a(storage, {c.rows(), c.columns}),
        dh(storage, {c.rows(), hidden}),
        a_again(storage, {c.rows(), c.columns}),
        drow_weight(execution::accumulation(storage), {c.rows()}),
        room(workspace(grouped_fc2_backward_input_workspace_bytes(c.rows(), c.columns, storage))) {}

  std::int64_t hidden;
  Array x, dy, w1, w2, offsets, row_weight, h, a, dh, a_again, drow_weight, room;
};

/// The first `count` elements are equal.
inline bool same(const Array& actual, const Array& expected, std::int64_t count) {
  const Values left = actual.values(), right = expected.values();
  return std::equal(left.begin(), left.begin() + count, right.begin());
}

/// All elements from `from` on are.
inline bool poisoned(const Array& array, std::int64_t from) {
  const Values values = array.values();
  return std::all_of(values.begin() + from, values.end(), [](double v) { return std::isnan(v); });
}

}  // namespace stowage::kernels::test
