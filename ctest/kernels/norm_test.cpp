#include <gtest/gtest.h>

#include <cmath>

#include "ctest/kernels/measured.hpp"
#include "kernels/norm/mean_squares.hpp"
#include "kernels/norm/rmsnorm.hpp"

namespace stowage::kernels::test {
namespace {

constexpr double kEps = 1e-5;

struct Sizes {
  std::int64_t n, width;
};

// One token, odd widths below and above the lanes of a sum, and more rows than one partial sum.
constexpr Sizes kSizes[] = {{1, 1}, {1, 48}, {3, 17}, {67, 33}, {200, 131}};

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

struct Forward {
  Values sum, y, rstd;
};

// The definition, in fp64; the sum is rounded to storage before its norm is taken.
Forward plain_forward(Sizes s, Dtype storage, const Values& x, const Values& delta,
                      const Values& w) {
  Forward f{x, x, Values(index(s.n))};
  for (std::size_t i = 0; i < delta.size(); ++i) f.sum[i] += delta[i];
  f.sum = rounded(f.sum, storage);
  for (std::int64_t i = 0; i < s.n; ++i) {
    double squares = 0;
    for (std::int64_t j = 0; j < s.width; ++j)
      squares += std::pow(f.sum[index(i * s.width + j)], 2);
    f.rstd[index(i)] = 1 / std::sqrt(squares / static_cast<double>(s.width) + kEps);
    for (std::int64_t j = 0; j < s.width; ++j)
      f.y[index(i * s.width + j)] = f.sum[index(i * s.width + j)] * f.rstd[index(i)] * w[index(j)];
  }
  return f;
}

AddRmsnormForward forward_of(Sizes s, Dtype storage, bool residual) {
  return {.rows = s.n, .width = s.width, .storage = storage, .residual = residual, .eps = kEps};
}

RmsnormBackward backward_of(Sizes s, Dtype storage, bool residual, bool accumulate = false) {
  return {.rows = s.n,
          .width = s.width,
          .storage = storage,
          .residual = residual,
          .accumulate = accumulate};
}

void check_forward(Random& random, Sizes s, Dtype storage, bool residual) {
  const AddRmsnormForward op = forward_of(s, storage, residual);
  const Arrays<AddRmsnormForward> o = make_arrays(op, random);
  set(o.x, random.normal(s.n * s.width, 3));
  run(op, o);

  const Forward expected =
      plain_forward(s, storage, o.x.values(), residual ? o.delta.values() : Values{}, o.w.values());
  const auto terms = static_cast<double>(s.width);
  if (residual) {
    EXPECT_LT(relative_error(o.sum.values(), expected.sum), tolerance(storage, 1));
  }
  EXPECT_LT(relative_error(o.y.values(), expected.y), tolerance(storage, terms));
  EXPECT_LT(relative_error(o.rstd.values(), expected.rstd),
            tolerance(execution::accumulation(storage), terms));
}

TEST(norm, forward_matches_definition) {
  Random random;
  for (const Sizes& s : kSizes)
    for (const Dtype storage : kFloatingTypes)
      for (const bool residual : {false, true}) check_forward(random, s, storage, residual);
}

TEST(norm, sum_is_rounded_before_its_norm) {
  // The sum is a tie that rounds to 256: unrounded, y / w would be 257 rstd.
  const AddRmsnormForward op{
      .rows = 1, .width = 1, .storage = Dtype::bf16, .residual = true, .eps = 0};
  const Arrays<AddRmsnormForward> o{.x = {Dtype::bf16, {1, 1}, Values{256}},
                                    .delta = {Dtype::bf16, {1, 1}, Values{1}},
                                    .w = {Dtype::bf16, {1}, Values{1}},
                                    .sum = {Dtype::bf16, {1, 1}},
                                    .y = {Dtype::bf16, {1, 1}},
                                    .rstd = {Dtype::fp32, {1}},
                                    .amax = {}};
  run(op, o);
  EXPECT_EQ(o.sum.values(), Values{256});
  EXPECT_EQ(o.rstd.values(), Values{1.0 / 256});
}

struct Gradients {
  Values dx, dw;
};

// In fp64, written as the derivative of each y_k by each x_j.
Gradients plain_backward(Sizes s, const Values& dy, const Values& x, const Values& w,
                         const Values& dresidual) {
  Gradients g{Values(x.size(), 0.0), Values(w.size(), 0.0)};
  const auto width = static_cast<double>(s.width);
  for (std::int64_t i = 0; i < s.n; ++i) {
    const auto at = [&](const Values& v, std::int64_t j) { return v[index(i * s.width + j)]; };
    double squares = 0;
    for (std::int64_t j = 0; j < s.width; ++j) squares += at(x, j) * at(x, j);
    const double r = 1 / std::sqrt(squares / width + kEps);
    for (std::int64_t j = 0; j < s.width; ++j) {
      double dx = dresidual.empty() ? 0 : at(dresidual, j);
      for (std::int64_t k = 0; k < s.width; ++k)
        dx +=
            at(dy, k) * w[index(k)] * ((j == k ? r : 0) - at(x, k) * at(x, j) * r * r * r / width);
      g.dx[index(i * s.width + j)] = dx;
      g.dw[index(j)] += at(dy, j) * at(x, j) * r;
    }
  }
  return g;
}

void check_backward(Random& random, Sizes s, Dtype storage, bool residual, bool accumulate) {
  const RmsnormBackward op = backward_of(s, storage, residual, accumulate);
  const Arrays<RmsnormBackward> o = make_arrays(op, random);
  set(o.x, random.normal(s.n * s.width, 3));
  const Values old = o.dw.values();
  run(forward_of(s, storage, false), {.x = o.x,
                                      .delta = {},
                                      .w = o.w,
                                      .sum = {},
                                      .y = Array(storage, {s.n, s.width}),
                                      .rstd = o.rstd,
                                      .amax = {}});
  run(op, o);

  Gradients expected = plain_backward(s, o.dy.values(), o.x.values(), o.w.values(),
                                      residual ? o.dresidual.values() : Values{});
  for (std::size_t j = 0; accumulate && j < old.size(); ++j) expected.dw[j] += old[j];
  EXPECT_LT(relative_error(o.dx.values(), expected.dx),
            tolerance(storage, static_cast<double>(s.width)));
  EXPECT_LT(relative_error(o.dw.values(), expected.dw),
            tolerance(execution::accumulation(storage), static_cast<double>(s.n + s.width)));
}

TEST(norm, backward_matches_definition) {
  Random random;
  for (const Sizes& s : kSizes) {
    if (s.width == 1) continue;  // there dx is of the size of eps: the rest cancels
    for (const Dtype storage : kFloatingTypes)
      for (const bool residual : {false, true})
        for (const bool accumulate : {false, true})
          check_backward(random, s, storage, residual, accumulate);
  }
}

TEST(norm, gradients_match_finite_differences) {
  Random random;
  const Sizes s{5, 7};
  const AddRmsnormForward forward = forward_of(s, Dtype::fp64, true);
  const RmsnormBackward backward = backward_of(s, Dtype::fp64, true);
  const Arrays<AddRmsnormForward> f = make_arrays(forward, random);
  set(f.delta, Values(index(s.n * s.width), 0.0));
  Arrays<RmsnormBackward> g = make_arrays(backward, random);
  g.x = f.x, g.w = f.w, g.rstd = f.rstd;
  run(forward, f);
  run(backward, g);
  const Values x = f.x.values(), w = f.w.values();
  const auto loss = [&](const Values& xs, const Values& ws) {
    set(f.x, xs);
    set(f.w, ws);
    run(forward, f);
    return dot(g.dy.values(), f.y.values()) + dot(g.dresidual.values(), f.sum.values());
  };
  const auto loss_of_x = [&](const Values& v) { return loss(v, w); };
  const auto loss_of_w = [&](const Values& v) { return loss(x, v); };
  EXPECT_LT(relative_error(g.dx.values(), numeric_gradient(x, loss_of_x)), 1e-7);
  EXPECT_LT(relative_error(g.dw.values(), numeric_gradient(w, loss_of_w)), 1e-7);
}

// Weights about 0 are those about 1, less 1: in fp64, where the sum is what the operator adds up.
TEST(norm, zero_centred_weights_scale_by_one_more) {
  Random random;
  const Sizes s{67, 33};
  AddRmsnormForward forward = forward_of(s, Dtype::fp64, true);
  RmsnormBackward backward = backward_of(s, Dtype::fp64, true);
  const Arrays<AddRmsnormForward> f = make_arrays(forward, random);
  Arrays<RmsnormBackward> g = make_arrays(backward, random);
  g.x = f.sum, g.rstd = f.rstd, g.w = f.w;
  const Values centred = f.w.values();
  Values plain = centred;
  for (double& w : plain) w += 1;
  std::vector<std::vector<Values>> found;
  for (const bool zero_centred : {true, false}) {
    forward.zero_centred = backward.zero_centred = zero_centred;
    set(f.w, zero_centred ? centred : plain);
    run(forward, f);
    run(backward, g);
    found.push_back({f.y.values(), g.dx.values(), g.dw.values()});
  }
  EXPECT_EQ(found[0], found[1]);
}

TEST(norm, the_largest_magnitude_is_that_of_what_is_stored) {
  Random random;
  for (const Sizes& s : kSizes)
    for (const Dtype storage : kFloatingTypes) {
      const AddRmsnormForward forward = forward_of(s, storage, true);
      expect_measured(forward, make_arrays(forward, random), &Arrays<AddRmsnormForward>::y);
      const RmsnormBackward backward = backward_of(s, storage, true);
      expect_measured(backward, make_arrays(backward, random), &Arrays<RmsnormBackward>::dx);
    }
}

TEST(norm, threads_do_not_change_bits) {
  Random random;
  const RmsnormBackward op = backward_of({1000, 77}, Dtype::fp32, false);
  const Arrays<RmsnormBackward> o = make_arrays(op, random);
  set(o.rstd, random.uniform(op.rows, 0.5, 2));
  run(op, o);
  const Values parallel = o.dw.values();
  Array(o.dw).poison();
  // On this thread the loops are serial.
  op.reference<float>({.dy = o.dy.as<float>().data(),
                       .x = o.x.as<float>().data(),
                       .w = o.w.as<float>().data(),
                       .rstd = o.rstd.as<float>().data(),
                       .dresidual = nullptr,
                       .dx = o.dx.as<float>().data(),
                       .dw = o.dw.as<float>().data(),
                       .workspace = reinterpret_cast<float*>(o.workspace.as<std::uint8_t>().data()),
                       .amax = nullptr});
  EXPECT_EQ(parallel, o.dw.values());
}

TEST(norm, dx_may_be_dresidual) {
  Random random;
  const RmsnormBackward op = backward_of({9, 20}, Dtype::fp64, true);
  const Arrays<RmsnormBackward> apart = make_arrays(op, random);
  Arrays<RmsnormBackward> together = apart;
  together.dx = apart.dresidual;
  run(op, apart);
  run(op, together);
  EXPECT_EQ(apart.dx.values(), together.dx.values());
}

TEST(norm, cost_follows_the_tables_formulas) {
  const double n = 10, c = 8;
  const Sizes s{10, 8};
  EXPECT_EQ(forward_of(s, Dtype::bf16, false).cost().bytes, 4 * n * c + 2 * c + 4 * n);
  EXPECT_EQ(forward_of(s, Dtype::bf16, true).cost().bytes, 8 * n * c + 2 * c + 4 * n);
  EXPECT_EQ(backward_of(s, Dtype::bf16, false).cost().bytes, 6 * n * c + 6 * c + 4 * n);
}

TEST(norm, mean_squares_are_those_of_the_rows) {
  Random random;
  for (const Sizes s : kSizes)
    for (const Dtype storage : kFloatingTypes) {
      const Dtype sums = execution::accumulation(storage);
      const AddRmsnormForward norm = forward_of(s, storage, false);
      const Arrays<AddRmsnormForward> o = make_arrays(norm, random);
      set(o.x, random.normal(s.n * s.width, 3));
      test::run(norm, o);
      const MeanSquares op{s.n, storage, kEps};
      const Array total(sums, {1}, Values{0.0});
      test::run(op, {.rstd = o.rstd, .total = total});
      double expected = 0;
      for (const double x : o.x.values()) expected += x * x / static_cast<double>(s.width);
      const double bound = tolerance(sums, static_cast<double>(s.n + s.width), 16) * expected;
      EXPECT_NEAR(total.values()[0], expected, bound);
      test::run(op, {.rstd = o.rstd, .total = total});
      EXPECT_NEAR(total.values()[0], 2 * expected, 2 * bound);
    }
}

// Rounding of rstd makes no row of zeros negative, and a NaN is told.
TEST(norm, mean_squares_of_zeros_are_none_and_a_nan_stays) {
  const MeanSquares op{2, Dtype::fp32, kEps};
  const float rstd = 1 / std::sqrt(static_cast<float>(kEps)) * (1 + 1e-6F);
  const Array total(Dtype::fp32, {1}, Values{0.0});
  test::run(op, {.rstd = Array(Dtype::fp32, {2}, Values{rstd, rstd}), .total = total});
  EXPECT_EQ(total.values()[0], 0);
  test::run(op, {.rstd = Array(Dtype::fp32, {2}, Values{rstd, std::nan("")}), .total = total});
  EXPECT_TRUE(std::isnan(total.values()[0]));
}

}  // namespace
}  // namespace stowage::kernels::test
