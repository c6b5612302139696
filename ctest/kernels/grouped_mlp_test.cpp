// The products with activation: the reference against its parts, gradients against differences.

#include <gtest/gtest.h>

#include "ctest/kernels/grouped_mlp_problem.hpp"
#include "kernels/grouped_mlp/grouped_linear.hpp"

namespace stowage::kernels::test {
namespace {

ExpertCase ragged() { return {{5, 0, 17, 1}, 3, 6, 9}; }

TEST(grouped_mlp, has_the_bits_of_its_parts) {
  Random random;
  const ExpertCase c = ragged();
  for (const Activation kind : kKinds)
    for (const Dtype storage : kFloatingTypes) {
      const MlpProblem p(c, kind, storage, random);
      const std::int64_t hidden = c.valid() * p.hidden, columns = c.valid() * c.f;
      const Array h(storage, {c.rows(), p.hidden}), a(storage, {c.rows(), c.f});
      const Array g(storage, {c.rows(), c.f}), dh(storage, {c.rows(), p.hidden});
      const Array drow_weight(p.drow_weight.dtype(), {c.rows()});
      const ValidRows valid{.counts = c.experts() + 1, .index = c.experts()};
      on_queue([&](Queue& q) {
        grouped_fc1_forward(q, kind, p.x, p.w1, p.offsets, p.row_weight, p.h, p.a);
        grouped_fc2_backward_input(q, kind, fc2_backward_operands(p, p.room));
        grouped_linear_forward(q, p.x, p.w1, p.offsets, h);
        ActivationForward{kind, c.rows(), c.f, storage, true, valid}.run(
            q, {.x = h, .row_weight = p.row_weight, .y = a, .valid_rows = p.offsets});
        grouped_linear_backward_input(q, p.dy, p.w2, p.offsets, g);
        ActivationBackward{kind, c.rows(), c.f, storage, true, valid}.run(
            q, {.dy = g,
                .x = h,
                .row_weight = p.row_weight,
                .dx = dh,
                .drow_weight = drow_weight,
                .valid_rows = p.offsets});
      });
      EXPECT_TRUE(same(p.h, h, hidden) && same(p.a, a, columns));
      EXPECT_TRUE(same(p.dh, dh, hidden) && same(p.a_again, a, columns));
      EXPECT_TRUE(same(p.drow_weight, drow_weight, c.valid()));
      EXPECT_TRUE(poisoned(p.h, hidden) && poisoned(p.a, columns) && poisoned(p.dh, hidden));
      EXPECT_TRUE(poisoned(p.a_again, columns) && poisoned(p.drow_weight, c.valid()));
    }
}

TEST(grouped_mlp, gradients_match_finite_differences) {
  Random random;
  const ExpertCase c{{3, 0, 2}, 0, 4, 3};
  for (const Activation kind : kKinds) {
    MlpProblem p(c, kind, Dtype::fp64, random);
    p.h.set(random.normal(c.rows() * p.hidden));
    on_queue(
        [&](Queue& q) { grouped_fc2_backward_input(q, kind, fc2_backward_operands(p, p.room)); });
    const std::vector<std::int32_t> offsets = c.offsets();
    const Values w2 = p.w2.values(), dy = p.dy.values();
    const auto loss = [&](const Values& h, const Values& row_weight) {
      Values a(static_cast<std::size_t>(c.rows() * c.f)), y(dy.size());
      ActivationForward{kind,        c.rows(), c.f,
                        Dtype::fp64, true,     {.counts = c.experts() + 1, .index = c.experts()}}
          .reference<double>({.x = h.data(),
                              .row_weight = row_weight.data(),
                              .y = a.data(),
                              .valid_rows = offsets.data()});
      grouped_linear_forward_ref(c.experts(), c.d, c.f, a.data(), w2.data(), offsets.data(),
                                 y.data());
      return dot(dy, y);
    };
    const Values h = p.h.values(), row_weight = p.row_weight.values();
    const auto of_h = [&](const Values& v) { return loss(v, row_weight); };
    const auto of_weight = [&](const Values& v) { return loss(h, v); };
    EXPECT_LT(relative_error(p.dh.values(), numeric_gradient(h, of_h)), 1e-8);
    EXPECT_LT(relative_error(p.drow_weight.values(), numeric_gradient(row_weight, of_weight)),
              1e-8);
  }
}

TEST(grouped_mlp, row_weights_may_be_absent) {
  Random random;
  const ExpertCase c = ragged();
  const MlpProblem p(c, Activation::squared_relu, Dtype::fp64, random);
  const Array ones(Dtype::fp64, {c.rows()}, Values(static_cast<std::size_t>(c.rows()), 1));
  const Array a(Dtype::fp64, {c.rows(), c.f});
  on_queue([&](Queue& q) {
    grouped_fc1_forward(q, Activation::squared_relu, p.x, p.w1, p.offsets, {}, p.h, p.a);
    grouped_fc1_forward(q, Activation::squared_relu, p.x, p.w1, p.offsets, ones, p.h, a);
    GroupedFc2BackwardOperands unweighted = fc2_backward_operands(p, p.room);
    unweighted.row_weight = unweighted.drow_weight = {};
    grouped_fc2_backward_input(q, Activation::squared_relu, unweighted);
  });
  EXPECT_TRUE(same(p.a, a, c.valid() * c.f));
  EXPECT_TRUE(same(p.a_again, a, c.valid() * c.f));
}

}  // namespace
}  // namespace stowage::kernels::test
