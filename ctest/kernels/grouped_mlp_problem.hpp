#pragma once

#include <algorithm>
#include <cmath>

#include "ctest/kernels/expert_case.hpp"
#include "ctest/kernels/support.hpp"
#include "kernels/grouped_mlp/grouped_mlp.hpp"

/// What the tests of the products with activation share, on the host and on a GPU.
namespace stowage::kernels::test {

inline constexpr Activation kKinds[] = {Activation::squared_relu, Activation::swiglu};

/// Operands and results of the products with activation, in host arrays; results are poisoned.
struct MlpProblem {
  MlpProblem(const ExpertCase& c, Activation kind, Dtype storage, Random& random)
      : hidden(activation_width(kind, c.f)),
        x(storage, {c.rows(), c.d}, random.normal(c.rows() * c.d)),
        dy(storage, {c.rows(), c.d}, random.normal(c.rows() * c.d)),
        w1(storage, {c.experts(), hidden, c.d}, random.normal(c.experts() * hidden * c.d)),
        w2(storage, {c.experts(), c.d, c.f}, random.normal(c.experts() * c.d * c.f)),
        offsets(int32_array(c.offsets())),
        row_weight(execution::accumulation(storage), {c.rows()}, random.uniform(c.rows(), 0, 1)),
        h(storage, {c.rows(), hidden}),
        a(storage, {c.rows(), c.f}),
        dh(storage, {c.rows(), hidden}),
        a_again(storage, {c.rows(), c.f}),
        drow_weight(execution::accumulation(storage), {c.rows()}),
        room(workspace(grouped_fc2_backward_input_workspace_bytes(c.rows(), c.f, storage))) {}

  std::int64_t hidden;
  Array x, dy, w1, w2, offsets, row_weight, h, a, dh, a_again, drow_weight, room;
};

/// The operands of the backward of a problem, on the host or on a device.
template <class Problem>
GroupedFc2BackwardOperands fc2_backward_operands(const Problem& p, const View& room) {
  return {.dy = p.dy,
          .w2 = p.w2,
          .offsets = p.offsets,
          .row_weight = p.row_weight,
          .h = p.h,
          .dh = p.dh,
          .a = p.a_again,
          .drow_weight = p.drow_weight,
          .workspace = room};
}

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
