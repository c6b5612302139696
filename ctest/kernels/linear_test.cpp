#include <gtest/gtest.h>

#include "ctest/kernels/operator_arrays.hpp"
#include "execution/error.hpp"
#include "kernels/linear/linear.hpp"
#include "kernels/linear/product_fill.hpp"

namespace stowage::kernels::test {
namespace {

struct Sizes {
  std::int64_t n, m, k;
};

// One token, odd sizes, and more than one tile in every direction.
constexpr Sizes kSizes[] = {{1, 1, 1},    {1, 7, 3},   {5, 3, 9},
                            {37, 19, 23}, {3, 515, 9}, {131, 21, 1027}};

// c (rows, columns) = a b, with elements given by functions.
template <class A, class B>
Values product(std::int64_t rows, std::int64_t columns, std::int64_t depth, A a, B b) {
  Values c(static_cast<std::size_t>(rows * columns), 0.0);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t k = 0; k < depth; ++k)
      for (std::int64_t j = 0; j < columns; ++j) c[i * columns + j] += a(i, k) * b(k, j);
  return c;
}

auto at(const Values& values, std::int64_t stride) {
  return [&values, stride](std::int64_t i, std::int64_t j) { return values[i * stride + j]; };
}

auto transposed(const Values& values, std::int64_t stride) {
  return [&values, stride](std::int64_t i, std::int64_t j) { return values[j * stride + i]; };
}

Values sum(Values a, const Values& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

// Each operator, in storage and result dtype, against the plain triple loop in fp64.
void check_against_loops(Sizes s, Dtype storage, Dtype result) {
  SCOPED_TRACE(testing::Message() << "n " << s.n << " m " << s.m << " k " << s.k << " "
                                  << execution::name(storage) << " " << execution::name(result));
  Random random;
  const Dtype accumulation = execution::accumulation(storage);
  const Values x = rounded(random.normal(s.n * s.k), storage);
  const Values w = rounded(random.normal(s.m * s.k), storage);
  const Values dy = rounded(random.normal(s.n * s.m), result);
  // Added to values of one sign and larger than most sums: nothing cancels.
  const Values old_dx = rounded(random.uniform(s.n * s.k, 20, 30), storage);
  const Values old_dw = rounded(random.uniform(s.m * s.k, 20, 30), accumulation);
  const Array xs(storage, {s.n, s.k}, x), ws(storage, {s.m, s.k}, w), y(result, {s.n, s.m});
  const Array dys(result, {s.n, s.m}, dy), dx(storage, {s.n, s.k}), dw(accumulation, {s.m, s.k});
  const Array more_dx(storage, {s.n, s.k}, old_dx), more_dw(accumulation, {s.m, s.k}, old_dw);
  const Array both_dx(storage, {s.n, s.k}), both_dw(accumulation, {s.m, s.k});
  const Array more_both_dx(storage, {s.n, s.k}, old_dx);
  const Array more_both_dw(accumulation, {s.m, s.k}, old_dw);
  using Input = LinearBackwardInput;
  using Weight = LinearBackwardWeight;
  run(LinearForward{s.n, s.m, s.k, storage, result}, {.x = xs, .w = ws, .y = y});
  run(Input{s.n, s.m, s.k, storage, result, false}, {.dy = dys, .w = ws, .dx = dx});
  run(Input{s.n, s.m, s.k, storage, result, true}, {.dy = dys, .w = ws, .dx = more_dx});
  run(Weight{s.n, s.m, s.k, storage, result, false}, {.dy = dys, .x = xs, .dw = dw});
  run(Weight{s.n, s.m, s.k, storage, result, true}, {.dy = dys, .x = xs, .dw = more_dw});
  run(LinearBackward{s.n, s.m, s.k, storage, result, false, true},
      {.dy = dys, .x = xs, .w = ws, .dx = both_dx, .dw = more_both_dw});
  run(LinearBackward{s.n, s.m, s.k, storage, result, true, false},
      {.dy = dys, .x = xs, .w = ws, .dx = more_both_dx, .dw = both_dw});
  EXPECT_EQ(both_dx.values(), dx.values());
  EXPECT_EQ(more_both_dx.values(), more_dx.values());
  EXPECT_EQ(both_dw.values(), dw.values());
  EXPECT_EQ(more_both_dw.values(), more_dw.values());

  const auto terms = [](std::int64_t count) { return static_cast<double>(count); };
  EXPECT_LT(relative_error(y.values(), product(s.n, s.m, s.k, at(x, s.k), transposed(w, s.k))),
            tolerance(result, terms(s.k)));
  const Values expected_dx = product(s.n, s.k, s.m, at(dy, s.m), at(w, s.k));
  EXPECT_LT(relative_error(dx.values(), expected_dx), tolerance(storage, terms(s.m)));
  EXPECT_LT(relative_error(more_dx.values(), sum(expected_dx, old_dx)),
            tolerance(storage, terms(s.m)));
  const Values expected_dw = product(s.m, s.k, s.n, transposed(dy, s.m), at(x, s.k));
  EXPECT_LT(relative_error(dw.values(), expected_dw), tolerance(accumulation, terms(s.n)));
  EXPECT_LT(relative_error(more_dw.values(), sum(expected_dw, old_dw)),
            tolerance(accumulation, terms(s.n)));
}

TEST(linear, products_match_loops_fp64) {
  for (const Sizes& s : kSizes) check_against_loops(s, Dtype::fp64, Dtype::fp64);
}

TEST(linear, products_match_loops_fp32) {
  for (const Sizes& s : kSizes) check_against_loops(s, Dtype::fp32, Dtype::fp32);
}

TEST(linear, products_match_loops_bf16) {
  for (const Sizes& s : kSizes) check_against_loops(s, Dtype::bf16, Dtype::bf16);
}

TEST(linear, products_match_loops_bf16_with_fp32_results) {
  for (const Sizes& s : kSizes) check_against_loops(s, Dtype::bf16, Dtype::fp32);
}

TEST(linear, gradients_match_finite_differences) {
  Random random;
  const std::int64_t n = 4, m = 3, k = 5;
  const Values x = random.normal(n * k), w = random.normal(m * k), dy = random.normal(n * m);
  constexpr Dtype kDouble = Dtype::fp64;
  const auto loss = [&](const Values& xs, const Values& ws) {
    Values y(dy.size());
    LinearForward{n, m, k, kDouble, kDouble}.reference<double>(
        {.x = xs.data(), .w = ws.data(), .y = y.data()});
    return dot(dy, y);
  };
  Values dx(x.size()), dw(w.size());
  LinearBackward{n, m, k, kDouble, kDouble, false, false}.reference<double>(
      {.dy = dy.data(), .x = x.data(), .w = w.data(), .dx = dx.data(), .dw = dw.data()});
  const auto loss_of_x = [&](const Values& v) { return loss(v, w); };
  const auto loss_of_w = [&](const Values& v) { return loss(x, v); };
  EXPECT_LT(relative_error(dx, numeric_gradient(x, loss_of_x)), 1e-8);
  EXPECT_LT(relative_error(dw, numeric_gradient(w, loss_of_w)), 1e-8);
}

TEST(linear, threads_do_not_change_bits) {
  Random random;
  const std::int64_t n = 300, m = 600, k = 1100;  // several tiles each way
  const Array x(Dtype::fp32, {n, k}, random.normal(n * k));
  const Array w(Dtype::fp32, {m, k}, random.normal(m * k));
  const Array parallel(Dtype::fp32, {n, m}), serial(Dtype::fp32, {n, m});
  const LinearForward op{n, m, k, Dtype::fp32, Dtype::fp32};
  run(op, {.x = x, .w = w, .y = parallel});
  // On this thread the loops are serial.
  op.reference<float>(
      {.x = x.as<float>().data(), .w = w.as<float>().data(), .y = serial.as<float>().data()});
  EXPECT_EQ(parallel.values(), serial.values());
}

TEST(linear, wrong_shape_is_named) {
  const Array x(Dtype::fp32, {4, 5}), w(Dtype::fp32, {3, 6}, "head.weight"), y(Dtype::fp32, {4, 3});
  try {
    run(LinearForward{4, 3, 5, Dtype::fp32, Dtype::fp32}, {.x = x, .w = w, .y = y});
    FAIL() << "accepted";
  } catch (const execution::Error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("linear_forward: w is fp32 (3, 6) 'head.weight'"), std::string::npos)
        << message;
    EXPECT_NE(message.find("it must be fp32 (3, 5)"), std::string::npos) << message;
  }
}

TEST(linear, cost_counts_each_operand_once) {
  const execution::Cost cost = LinearForward{7, 5, 3, Dtype::bf16, Dtype::fp32}.cost();
  EXPECT_EQ(cost.flops, 2.0 * 7 * 5 * 3);
  EXPECT_EQ(cost.bytes, 2.0 * (7 * 3 + 5 * 3) + 4.0 * 7 * 5);
  const execution::Cost added =
      LinearBackwardWeight{7, 5, 3, Dtype::bf16, Dtype::bf16, true}.cost();
  EXPECT_EQ(added.bytes, 2.0 * (7 * 5 + 7 * 3) + 2 * 4.0 * 5 * 3);
  const execution::Cost both =
      LinearBackward{7, 5, 3, Dtype::bf16, Dtype::fp32, true, false}.cost();
  EXPECT_EQ(both.flops, 4.0 * 7 * 5 * 3);
  EXPECT_EQ(both.bytes, 4.0 * (7 * 5 + 5 * 3) + 2.0 * (3 * 7 * 3 + 5 * 3));
}

// 132 multiprocessors take tiles of 128 by 256 in rounds. 0.97: what they do of 8192^3.
TEST(linear, tiles_that_fill_no_round_leave_multiprocessors_idle) {
  const double large = 2048.0 / 2112, tile = 2.0 * 128 * 256;
  const auto expect_near = [](double idle, double wanted) {
    EXPECT_NEAR(idle, wanted, 1e-12 * wanted);
  };
  EXPECT_EQ(product_idle_flops(8192, 8192, 8192), 0);
  EXPECT_EQ(product_idle_flops(0, 768, 768), 0);
  // 192 tiles in two rounds, of a result and of its transpose.
  const double two_rounds = large * 264 * tile * 768, flops = 2.0 * 8192 * 768 * 768;
  expect_near(product_idle_flops(8192, 768, 768), two_rounds - flops);
  expect_near(product_idle_flops(768, 8192, 768), two_rounds - flops);
  // 72 tiles: three parts of the sums fill two rounds better than one or two fill one.
  expect_near(product_idle_flops(3072, 768, 8192),
              large * 264 * tile * 8192 / 3 - 2.0 * 3072 * 768 * 8192);
  expect_near(product_idle_flops(3072, 768, 2048),
              large * 132 * tile * 2048 - 2.0 * 3072 * 768 * 2048);
  // Narrow results have narrow tiles: 132 tiles of 64 columns, none idle but for half of each.
  expect_near(product_idle_flops(132 * 128, 32, 2000),
              (2 * large - 1) * 2.0 * 132 * 128 * 32 * 2000);
}

}  // namespace
}  // namespace stowage::kernels::test
