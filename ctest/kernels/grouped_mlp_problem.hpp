#pragma once

#include <algorithm>
#include <cmath>

#include "ctest/kernels/expert_case.hpp"
#include "ctest/kernels/operator_arrays.hpp"
#include "kernels/grouped_mlp/grouped_mlp.hpp"

/// What the tests of the products with activation share, on the host and on a GPU.
namespace stowage::kernels::test {

inline constexpr Activation kKinds[] = {Activation::squared_relu, Activation::swiglu};

/// GroupedFc1Forward or GroupedFc2BackwardInput.
template <class Op>
Op fused(const ExpertCase& c, Activation kind, Dtype storage, bool weighted = true) {
  return {.kind = kind,
          .rows = c.rows(),
          .routed = c.rows(),
          .experts = c.experts(),
          .columns = c.f,
          .width = c.d,
          .storage = storage,
          .weighted = weighted};
}

/// Both operators with their arrays; results are poisoned. The gradient has its own a, and the
/// forward's offsets, row weights and h.
struct MlpProblem {
  MlpProblem(const ExpertCase& c, Activation kind, Dtype storage, Random& random)
      : fc1(fused<GroupedFc1Forward>(c, kind, storage)),
        fc2(fused<GroupedFc2BackwardInput>(c, kind, storage)),
        forward(make_arrays(fc1, random)),
        backward(make_arrays(fc2, random)) {
    const std::vector<std::int32_t> offsets = c.offsets();
    set(forward.offsets, {offsets.begin(), offsets.end()});
    set(forward.row_weight, random.uniform(c.rows(), 0, 1));
    join();
  }
  void join() {
    backward.offsets = forward.offsets;
    backward.row_weight = forward.row_weight;
    backward.h = forward.h;
  }
  template <class At>
  void enqueue(Queue& q, At& at) const {
    test::enqueue(q, fc1, forward, at);
    test::enqueue(q, fc2, backward, at);
  }

  /// The results of the parts, run apart on the same inputs.
  struct Parts {
    Array h, a, g, dh, drow_weight;
  };
  Parts make_parts() const {
    const auto like = [](const Array& array) {
      return Array(array.dtype(), array.view().buffer().shape);
    };
    return {like(forward.h), like(forward.a), like(forward.a), like(forward.h),
            like(forward.row_weight)};
  }
  template <class At>
  void enqueue_parts(Queue& q, const Parts& to, At& at) const {
    const Array &offsets = forward.offsets, &row_weight = forward.row_weight;
    test::enqueue(q, fc1.product(),
                  {.x = forward.x, .w = forward.w1, .offsets = offsets, .y = to.h}, at);
    test::enqueue(q, fc1.activation(),
                  {.x = to.h, .row_weight = row_weight, .y = to.a, .valid_rows = offsets}, at);
    test::enqueue(q, fc2.product(),
                  {.dy = backward.dy, .w = backward.w2, .offsets = offsets, .dx = to.g}, at);
    test::enqueue(q, fc2.activation(),
                  {.dy = to.g,
                   .x = to.h,
                   .row_weight = row_weight,
                   .dx = to.dh,
                   .drow_weight = to.drow_weight,
                   .valid_rows = offsets,
                   .amax = {}},
                  at);
  }

  GroupedFc1Forward fc1;
  GroupedFc2BackwardInput fc2;
  Arrays<GroupedFc1Forward> forward;
  Arrays<GroupedFc2BackwardInput> backward;
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
