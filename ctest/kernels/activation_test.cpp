#include <gtest/gtest.h>

#include <cmath>

#include "ctest/kernels/support.hpp"
#include "kernels/activation/activation.hpp"

namespace stowage::kernels::test {
namespace {

struct Case {
  Activation kind;
  std::int64_t rows, columns, valid;
  bool weighted;

  std::int64_t width() const { return activation_width(kind, columns); }
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Activation kind : {Activation::squared_relu, Activation::swiglu})
    for (const bool weighted : {false, true}) {
      all.push_back({kind, 1, 1, 1, weighted});
      all.push_back({kind, 37, 19, 37, weighted});
      all.push_back({kind, 40, 33, 21, weighted});
      all.push_back({kind, 5, 8, 0, weighted});
    }
  return all;
}

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

struct Inputs {
  Inputs(Random& random, const Case& c, Dtype storage)
      : x(rounded(random.normal(c.rows * c.width()), storage)),
        weight(rounded(random.uniform(c.rows, 0.1, 2), execution::accumulation(storage))),
        dy(rounded(random.normal(c.rows * c.columns), storage)) {}
  Values x, weight, dy;
};

// weight * act(x) of the valid rows, in fp64.
Values plain_forward(const Case& c, const Values& x, const Values& weight) {
  Values y(index(c.valid * c.columns));
  for (std::int64_t i = 0; i < c.valid; ++i)
    for (std::int64_t j = 0; j < c.columns; ++j) {
      const double v = x[index(i * c.width() + j)];
      const double act = c.kind == Activation::squared_relu
                             ? (v > 0 ? v * v : 0)
                             : v / (1 + std::exp(-v)) * x[index(i * c.width() + c.columns + j)];
      y[index(i * c.columns + j)] = (c.weighted ? weight[index(i)] : 1) * act;
    }
  return y;
}

// The number of valid rows lies in the middle of a tensor of counts.
Array counts_of(const Case& c) { return int32_array({99, static_cast<std::int32_t>(c.valid), 99}); }

// The first `count` values; all later ones must still be poison.
Values leading(const Array& array, std::int64_t count) {
  const Values values = array.values();
  for (std::size_t i = index(count); i < values.size(); ++i)
    EXPECT_TRUE(std::isnan(values[i])) << "element " << i << " beyond the valid rows was written";
  return {values.begin(), values.begin() + count};
}

Values forward(const Case& c, Dtype storage, const Inputs& in) {
  const Dtype accumulation = execution::accumulation(storage);
  const Array x(storage, {c.rows, c.width()}, in.x), y(storage, {c.rows, c.columns});
  const Array weight = c.weighted ? Array(accumulation, {c.rows}, in.weight) : Array();
  const Array counts = counts_of(c);
  on_queue([&](Queue& q) { activation_forward(q, c.kind, x, weight, y, {counts.view(), 1}); });
  return leading(y, c.valid * c.columns);
}

struct Gradients {
  Values dx, dweight;
};

Gradients backward(const Case& c, Dtype storage, const Inputs& in) {
  const Dtype accumulation = execution::accumulation(storage);
  const Array x(storage, {c.rows, c.width()}, in.x), dy(storage, {c.rows, c.columns}, in.dy);
  const Array dx(storage, {c.rows, c.width()});
  const Array weight = c.weighted ? Array(accumulation, {c.rows}, in.weight) : Array();
  const Array dweight = c.weighted ? Array(accumulation, {c.rows}) : Array();
  const Array counts = counts_of(c);
  on_queue([&](Queue& q) {
    activation_backward(q, c.kind, dy, x, weight, dx, dweight, {counts.view(), 1});
  });
  return {leading(dx, c.valid * c.width()), c.weighted ? leading(dweight, c.valid) : Values{}};
}

TEST(activation, forward_matches_definition) {
  Random random;
  for (const Case& c : cases())
    for (const Dtype storage : kFloatingTypes) {
      const Inputs in(random, c, storage);
      EXPECT_LE(relative_error(forward(c, storage, in), plain_forward(c, in.x, in.weight)),
                tolerance(storage, 1));
    }
}

TEST(activation, gradients_match_finite_differences) {
  Random random;
  for (const Case& c : cases()) {
    if (c.valid == 0) continue;
    const Inputs in(random, c, Dtype::fp64);
    const Gradients g = backward(c, Dtype::fp64, in);
    const auto loss = [&](const Values& x, const Values& weight) {
      const Values y = plain_forward(c, x, weight);
      return dot(y, in.dy);
    };
    Values dx = numeric_gradient(in.x, [&](const Values& v) { return loss(v, in.weight); });
    dx.resize(g.dx.size());
    // A squared ReLU's second derivative jumps at 0: a step over it is off by the step.
    EXPECT_LT(relative_error(g.dx, dx), 1e-6);
    if (!c.weighted) continue;
    Values dweight = numeric_gradient(in.weight, [&](const Values& v) { return loss(in.x, v); });
    dweight.resize(g.dweight.size());
    EXPECT_LT(relative_error(g.dweight, dweight), 1e-8);
  }
}

TEST(activation, backward_in_low_precision_matches_fp64) {
  Random random;
  for (const Case& c : cases())
    for (const Dtype storage : {Dtype::fp32, Dtype::bf16}) {
      const Inputs in(random, c, storage);
      const Gradients g = backward(c, storage, in), expected = backward(c, Dtype::fp64, in);
      EXPECT_LE(relative_error(g.dx, expected.dx), tolerance(storage, 1));
      EXPECT_LE(relative_error(g.dweight, expected.dweight),
                tolerance(execution::accumulation(storage), static_cast<double>(c.columns)));
    }
}

TEST(activation, all_rows_are_valid_without_a_count) {
  Random random;
  const Case c{Activation::squared_relu, 9, 5, 9, false};
  const Inputs in(random, c, Dtype::fp64);
  const Array x(Dtype::fp64, {c.rows, c.columns}, in.x), y(Dtype::fp64, {c.rows, c.columns});
  on_queue([&](Queue& q) { activation_forward(q, c.kind, x, {}, y); });
  EXPECT_EQ(y.values(), plain_forward(c, in.x, in.weight));
}

TEST(activation, cost_follows_the_tables_formulas) {
  const double values = 10 * 8;
  EXPECT_EQ(activation_forward_cost(Activation::squared_relu, 10, 8, Dtype::bf16).bytes,
            4 * values);
  EXPECT_EQ(activation_forward_cost(Activation::swiglu, 10, 8, Dtype::bf16).bytes, 6 * values);
  EXPECT_EQ(activation_backward_cost(Activation::squared_relu, 10, 8, Dtype::bf16).bytes,
            6 * values);
  EXPECT_EQ(activation_backward_cost(Activation::swiglu, 10, 8, Dtype::bf16).bytes, 10 * values);
}

}  // namespace
}  // namespace stowage::kernels::test
