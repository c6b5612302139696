// The products with activation on a GPU: against the host's in fp64, and bit by bit against the
// product and the activation apart.

#include <algorithm>
#include <cmath>
#include <string>

#include "ctest/kernels/grouped_mlp_problem.hpp"
#include "ctest/kernels/operator_check.hpp"

namespace stowage::kernels::test {
namespace {

// h, a, dh, a once more and drow_weight, as a GPU leaves them.
std::vector<Array> fused_on_gpu(const MlpProblem& p, int replays = 0) {
  return on_gpu([&](Queue& q, auto& at) { p.enqueue(q, at); },
                {p.forward.h, p.forward.a, p.backward.dh, p.backward.a, p.backward.drow_weight},
                replays);
}

// Rows of no expert are not to be read.
void spoil(const Array& array, std::int64_t from) {
  Values values = array.values();
  std::fill(values.begin() + from, values.end(), std::nan(""));
  set(array, values);
}

double error(const Array& actual, const Array& expected, std::int64_t count) {
  const Values left = actual.values(), right = expected.values();
  return relative_error({left.begin(), left.begin() + count},
                        {right.begin(), right.begin() + count});
}

// How much larger the terms of drow_weight = sum_f g_f act(h_f) are, by norm, than the sums: each
// g_f is rounded, and in few columns the terms may nearly cancel.
double cancellation(const MlpProblem& exact, const ExpertCase& c) {
  const Arrays<GroupedFc2BackwardInput>& o = exact.backward;
  const Array g(Dtype::fp64, {c.rows(), c.f});
  run(exact.fc2.product(), {.dy = o.dy, .w = o.w2, .offsets = o.offsets, .dx = g});
  const Values gradient = g.values(), weighted = o.a.values();
  const Values weight = o.row_weight.values(), sum = o.drow_weight.values();
  double terms = 0, sums = 0;
  for (std::int64_t row = 0; row < c.valid(); ++row) {
    const auto r = static_cast<std::size_t>(row), width = static_cast<std::size_t>(c.f);
    for (std::size_t i = r * width; i < (r + 1) * width; ++i) {
      const double term = gradient[i] * weighted[i] / weight[r];
      terms += term * term;
    }
    sums += sum[r] * sum[r];
  }
  return sums > 0 ? std::max(1.0, std::sqrt(terms / sums)) : 1;
}

void check(Random& random, const ExpertCase& c, Activation kind, Dtype storage) {
  SCOPED_TRACE(std::to_string(c.experts()) + " experts, " + std::to_string(c.valid()) + " + " +
               std::to_string(c.spare) + " rows, D " + std::to_string(c.d) + ", F " +
               std::to_string(c.f) + ", " + std::string(execution::name(storage)) +
               (kind == Activation::swiglu ? ", swiglu" : ", squared relu"));
  const MlpProblem p(c, kind, storage, random);
  spoil(p.forward.x, c.valid() * c.d);
  spoil(p.backward.dy, c.valid() * c.d);
  const MlpProblem::Parts parts = p.make_parts();
  const std::vector<Array> made = fused_on_gpu(p);
  const std::vector<Array> apart = on_gpu(
      [&](Queue& q, auto& at) { p.enqueue_parts(q, parts, at); }, {parts.h, parts.a, parts.dh}, 0);
  const Array &h = made[0], &a = made[1], &dh = made[2], &a_again = made[3], &drow_weight = made[4];
  const std::int64_t hidden = c.valid() * h.view().extent(1), columns = c.valid() * c.f;
  EXPECT_TRUE(same(h, apart[0], hidden));
  EXPECT_TRUE(same(a, apart[1], columns));
  EXPECT_TRUE(same(dh, apart[2], hidden));
  EXPECT_TRUE(same(a_again, apart[1], columns));
  EXPECT_TRUE(poisoned(h, hidden) && poisoned(a, columns));
  EXPECT_TRUE(poisoned(dh, hidden) && poisoned(a_again, columns));
  EXPECT_TRUE(poisoned(drow_weight, c.valid()));
  if (c.valid() == 0) return;

  // The host in fp64, from h as the device stored it: activations amplify its rounding.
  MlpProblem exact(c, kind, Dtype::fp64, random);
  exact.forward = in_type_of(exact.fc1, p.forward);
  exact.backward = in_type_of(exact.fc2, p.backward);
  exact.join();
  run(exact.fc1, exact.forward);
  EXPECT_LT(error(h, exact.forward.h, hidden), tolerance(storage, static_cast<double>(c.d)));
  set(exact.forward.h, h.values());
  run(exact.fc2, exact.backward);
  // g and dh round once each; drow_weight sums F products of a rounded g.
  const double twice = 2 * tolerance(storage, static_cast<double>(c.d + c.f));
  EXPECT_LT(error(a, exact.backward.a, columns), twice);
  EXPECT_LT(error(dh, exact.backward.dh, hidden), twice);
  EXPECT_LT(error(drow_weight, exact.backward.drow_weight, c.valid()),
            cancellation(exact, c) * twice);
}

TEST(grouped_mlp_gpu, matches_its_parts_and_the_host) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Activation kind : kKinds) {
    check(random, {{1}, 0, 8, 8}, kind, Dtype::bf16);
    check(random, {{3, 0, 130, 64}, 5, 88, 72}, kind, Dtype::bf16);
    check(random, {{200, 1, 0, 77, 300}, 9, 328, 416}, kind, Dtype::bf16);
    check(random, {{127, 129, 191, 193, 0, 2}, 7, 192, 544}, kind, Dtype::bf16);
    check(random, {{385, 0, 128, 448, 320}, 3, 192, 336}, kind, Dtype::bf16);
    check(random, {{2180, 2320}, 3, 64, 376}, kind, Dtype::bf16);
    check(random, {{0, 0, 0}, 3, 64, 192}, kind, Dtype::bf16);
    // Columns that end in one or two tiles of fc2's gradient narrower than the others.
    check(random, {{64, 65, 0, 150}, 3, 136, 448}, kind, Dtype::bf16);
    check(random, {{16, 141}, 2, 72, 256}, kind, Dtype::bf16);
    check(random, {{130}, 0, 200, 1160}, kind, Dtype::bf16);
  }
}

// A row has the same bits in tiles of both shapes, but for drow_weight, whose sums are by tiles.
TEST(grouped_mlp_gpu, same_bits_in_tall_tiles) {
  STOWAGE_NEED_GPU();
  Random random;
  constexpr std::int64_t kFew = 150;  // 129 to 192 of an expert's last rows are in tall tiles
  for (const Activation kind : kKinds) {
    for (const std::int64_t f : {352, 384}) {
      MlpProblem p({{256}, 0, 320, f}, kind, Dtype::bf16, random);
      const std::vector<Array> flat = fused_on_gpu(p);
      p.forward.offsets = int32_array({0, kFew});
      p.join();
      const std::vector<Array> tall = fused_on_gpu(p);
      for (std::size_t i = 0; i < 4; ++i)
        EXPECT_TRUE(same(tall[i], flat[i], kFew * flat[i].view().extent(1))) << "result " << i;
    }
  }
}

TEST(grouped_mlp_gpu, odd_extents_and_fp32) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Activation kind : kKinds)
    for (const Dtype storage : {Dtype::bf16, Dtype::fp32})
      check(random, {{5, 0, 130}, 5, 90, 70}, kind, storage);
}

TEST(grouped_mlp_gpu, same_bits_in_every_run_and_replay) {
  STOWAGE_NEED_GPU();
  Random random;
  const ExpertCase c{{300, 17, 0, 128, 90, 250, 3}, 4, 320, 264};
  for (const Activation kind : kKinds) fused_on_gpu(MlpProblem(c, kind, Dtype::bf16, random), 100);
}

}  // namespace
}  // namespace stowage::kernels::test
