// The output gate and the sigmoid of sums, with their gradients.
#include "kernels/activation/sigmoid.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "ctest/kernels/operator_arrays.hpp"

namespace stowage::kernels::test {
namespace {

struct Sizes {
  std::int64_t rows, columns;
};

// None, one, an odd number, and more than a share of a host thread.
constexpr Sizes kSizes[] = {{0, 8}, {1, 1}, {7, 33}, {70, 129}};

double share(double gate) { return 1 / (1 + std::exp(-gate)); }

TEST(sigmoid, gate_matches_its_definition) {
  Random random;
  for (const Sizes& s : kSizes)
    for (const Dtype storage : kFloatingTypes) {
      const SigmoidGateForward op{.rows = s.rows, .columns = s.columns, .storage = storage};
      const Arrays<SigmoidGateForward> o = make_arrays(op, random);
      run(op, o);
      Values expected = o.x.values();
      const Values gate = o.gate.values();
      for (std::size_t i = 0; i < gate.size(); ++i) expected[i] *= share(gate[i]);
      EXPECT_LE(relative_error(o.y.values(), expected), tolerance(storage, 2));
    }
}

TEST(sigmoid, gradients_of_the_gate_match_finite_differences) {
  Random random;
  const SigmoidGateBackward op{.rows = 5, .columns = 7, .storage = Dtype::fp64};
  const Arrays<SigmoidGateBackward> o = make_arrays(op, random);
  run(op, o);
  const Values x = o.x.values(), gate = o.gate.values(), dy = o.dy.values();
  const auto loss = [&](const Values& of_x, const Values& of_gate) {
    double sum = 0;
    for (std::size_t i = 0; i < dy.size(); ++i) sum += dy[i] * of_x[i] * share(of_gate[i]);
    return sum;
  };
  const Values dx = numeric_gradient(x, [&](const Values& v) { return loss(v, gate); });
  const Values dgate = numeric_gradient(gate, [&](const Values& v) { return loss(x, v); });
  EXPECT_LT(relative_error(o.dx.values(), dx), 1e-8);
  EXPECT_LT(relative_error(o.dgate.values(), dgate), 1e-8);
}

// dx may be dy.
TEST(sigmoid, gate_backward_works_in_place) {
  Random random;
  for (const Dtype storage : kFloatingTypes) {
    const SigmoidGateBackward op{.rows = 9, .columns = 20, .storage = storage};
    const Arrays<SigmoidGateBackward> apart = make_arrays(op, random);
    Arrays<SigmoidGateBackward> together = apart;
    together.dy = {storage, {op.rows, op.columns}, apart.dy.values()};
    together.dx = together.dy;
    together.dgate = {storage, {op.rows, op.columns}};
    run(op, apart);
    run(op, together);
    EXPECT_EQ(together.dx.values(), apart.dx.values());
    EXPECT_EQ(together.dgate.values(), apart.dgate.values());
  }
}

TEST(sigmoid, of_sums_matches_its_definition_and_gradient) {
  Random random;
  for (const Dtype storage : kFloatingTypes) {
    const Dtype sums = execution::accumulation(storage);
    const SigmoidForward forward{.rows = 37, .storage = storage};
    const SigmoidBackward backward{.rows = 37, .storage = storage};
    const Arrays<SigmoidForward> f = make_arrays(forward, random);
    Arrays<SigmoidBackward> g = make_arrays(backward, random);
    g.y = f.y;
    run(forward, f);
    run(backward, g);
    Values y = f.x.values(), dx = g.dy.values();
    for (std::size_t i = 0; i < y.size(); ++i) {
      y[i] = share(y[i]);
      dx[i] *= y[i] * (1 - y[i]);
    }
    EXPECT_LE(relative_error(f.y.values(), y), tolerance(sums, 2));
    EXPECT_LE(relative_error(g.dx.values(), dx), tolerance(sums, 4));
  }
}

}  // namespace
}  // namespace stowage::kernels::test
