// The products with activation: the reference against its parts, gradients against differences.

#include <gtest/gtest.h>

#include "ctest/kernels/grouped_mlp_problem.hpp"

namespace stowage::kernels::test {
namespace {

ExpertCase ragged() { return {{5, 0, 17, 1}, 3, 6, 9}; }

TEST(grouped_mlp, has_the_bits_of_its_parts) {
  Random random;
  const ExpertCase c = ragged();
  for (const Activation kind : kKinds)
    for (const Dtype storage : kFloatingTypes) {
      const MlpProblem p(c, kind, storage, random);
      const MlpProblem::Parts parts = p.make_parts();
      const auto here = [](const Array& array) { return array.view(); };
      on_queue([&](Queue& q) {
        p.enqueue(q, here);
        p.enqueue_parts(q, parts, here);
      });
      const auto& [x, w1, offsets, row_weight, h, a] = p.forward;
      const Array &dh = p.backward.dh, &a_again = p.backward.a, &dweight = p.backward.drow_weight;
      const std::int64_t hidden = c.valid() * h.view().extent(1), columns = c.valid() * c.f;
      EXPECT_TRUE(same(h, parts.h, hidden) && same(a, parts.a, columns));
      EXPECT_TRUE(same(dh, parts.dh, hidden) && same(a_again, parts.a, columns));
      EXPECT_TRUE(same(dweight, parts.drow_weight, c.valid()));
      EXPECT_TRUE(poisoned(h, hidden) && poisoned(a, columns) && poisoned(dh, hidden));
      EXPECT_TRUE(poisoned(a_again, columns) && poisoned(dweight, c.valid()));
    }
}

TEST(grouped_mlp, gradients_match_finite_differences) {
  Random random;
  const ExpertCase c{{3, 0, 2}, 0, 4, 3};
  for (const Activation kind : kKinds) {
    const MlpProblem p(c, kind, Dtype::fp64, random);
    const Arrays<GroupedFc2BackwardInput>& o = p.backward;
    set(o.h, random.normal(static_cast<std::int64_t>(o.h.size())));
    run(p.fc2, o);
    const std::vector<std::int32_t> offsets = c.offsets();
    const Values w2 = o.w2.values(), dy = o.dy.values();
    const auto loss = [&](const Values& h, const Values& row_weight) {
      Values a(static_cast<std::size_t>(c.rows() * c.f)), y(dy.size());
      p.fc1.activation().reference<double>({.x = h.data(),
                                            .row_weight = row_weight.data(),
                                            .y = a.data(),
                                            .valid_rows = offsets.data()});
      c.product<GroupedLinearForward>(Dtype::fp64)
          .reference<double>(
              {.x = a.data(), .w = w2.data(), .offsets = offsets.data(), .y = y.data()});
      return dot(dy, y);
    };
    const Values h = o.h.values(), row_weight = o.row_weight.values();
    const auto of_h = [&](const Values& v) { return loss(v, row_weight); };
    const auto of_weight = [&](const Values& v) { return loss(h, v); };
    EXPECT_LT(relative_error(o.dh.values(), numeric_gradient(h, of_h)), 1e-8);
    EXPECT_LT(relative_error(o.drow_weight.values(), numeric_gradient(row_weight, of_weight)),
              1e-8);
  }
}

TEST(grouped_mlp, row_weights_may_be_absent) {
  Random random;
  const ExpertCase c = ragged();
  MlpProblem p(c, Activation::squared_relu, Dtype::fp64, random);
  set(p.forward.row_weight, Values(static_cast<std::size_t>(c.rows()), 1));
  run(p.fc1, p.forward);
  const Array weighted = p.forward.a;
  p.fc1.weighted = p.fc2.weighted = false;
  p.forward.row_weight = p.backward.row_weight = p.backward.drow_weight = {};
  p.forward.a = Array(Dtype::fp64, {c.rows(), c.f});
  run(p.fc1, p.forward);
  run(p.fc2, p.backward);
  EXPECT_TRUE(same(p.forward.a, weighted, c.valid() * c.f));
  EXPECT_TRUE(same(p.backward.a, weighted, c.valid() * c.f));
}

}  // namespace
}  // namespace stowage::kernels::test
