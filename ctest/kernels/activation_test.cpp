#include <gtest/gtest.h>

#include <cmath>

#include "ctest/kernels/measured.hpp"
#include "execution/error.hpp"
#include "kernels/activation/activation.hpp"

namespace stowage::kernels::test {
namespace {

struct Case {
  Activation kind;
  std::int64_t rows, columns, valid;
  bool weighted;

  std::int64_t width() const { return activation_width(kind, columns); }
  // The number of valid rows lies in the middle of a tensor of counts.
  template <class Op>
  Op of(Dtype storage) const {
    return {.kind = kind,
            .rows = rows,
            .columns = columns,
            .storage = storage,
            .weighted = weighted,
            .valid = {.counts = 3, .index = 1}};
  }
  Array counts() const { return int32_array({99, static_cast<std::int32_t>(valid), 99}); }
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

// The first `count` values; all later ones must still be poison.
Values leading(const Array& array, std::int64_t count) {
  const Values values = array.values();
  for (std::size_t i = index(count); i < values.size(); ++i)
    EXPECT_TRUE(std::isnan(values[i])) << "element " << i << " beyond the valid rows was written";
  return {values.begin(), values.begin() + count};
}

// Inputs as given, outputs poisoned.
template <class Op>
Arrays<Op> arrays_of(Random& random, const Op& op, const Case& c, const Inputs& in) {
  Arrays<Op> o = make_arrays(op, random);
  set(o.x, in.x);
  if (c.weighted) set(o.row_weight, in.weight);
  o.valid_rows = c.counts();
  return o;
}

Values forward(Random& random, const Case& c, Dtype storage, const Inputs& in) {
  const auto op = c.of<ActivationForward>(storage);
  const Arrays<ActivationForward> o = arrays_of(random, op, c, in);
  run(op, o);
  return leading(o.y, c.valid * c.columns);
}

struct Gradients {
  Values dx, dweight;
};

Gradients backward(Random& random, const Case& c, Dtype storage, const Inputs& in) {
  const auto op = c.of<ActivationBackward>(storage);
  const Arrays<ActivationBackward> o = arrays_of(random, op, c, in);
  set(o.dy, in.dy);
  run(op, o);
  return {leading(o.dx, c.valid * c.width()),
          c.weighted ? leading(o.drow_weight, c.valid) : Values{}};
}

TEST(activation, forward_matches_definition) {
  Random random;
  for (const Case& c : cases())
    for (const Dtype storage : kFloatingTypes) {
      const Inputs in(random, c, storage);
      EXPECT_LE(relative_error(forward(random, c, storage, in), plain_forward(c, in.x, in.weight)),
                tolerance(storage, 1));
    }
}

TEST(activation, gradients_match_finite_differences) {
  Random random;
  for (const Case& c : cases()) {
    if (c.valid == 0) continue;
    const Inputs in(random, c, Dtype::fp64);
    const Gradients g = backward(random, c, Dtype::fp64, in);
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
      const Gradients g = backward(random, c, storage, in),
                      expected = backward(random, c, Dtype::fp64, in);
      EXPECT_LE(relative_error(g.dx, expected.dx), tolerance(storage, 1));
      EXPECT_LE(relative_error(g.dweight, expected.dweight),
                tolerance(execution::accumulation(storage), static_cast<double>(c.columns)));
    }
}

TEST(activation, the_largest_magnitude_is_that_of_what_is_stored) {
  Random random;
  for (const Case& c : cases())
    for (const Dtype storage : kFloatingTypes) {
      auto op = c.of<ActivationBackward>(storage);
      op.measured = true;
      EXPECT_THROW(run(op, make_arrays(op, random)), execution::Error);  // of some rows
      op.measured = false;
      op.valid = {};
      expect_measured(op, make_arrays(op, random), &Arrays<ActivationBackward>::dx);
    }
}

TEST(activation, all_rows_are_valid_without_a_count) {
  Random random;
  const Case c{Activation::squared_relu, 9, 5, 9, false};
  const Inputs in(random, c, Dtype::fp64);
  auto op = c.of<ActivationForward>(Dtype::fp64);
  op.valid = {};
  const Array y(Dtype::fp64, {c.rows, c.columns});
  run(op,
      {.x = {Dtype::fp64, {c.rows, c.columns}, in.x}, .row_weight = {}, .y = y, .valid_rows = {}});
  EXPECT_EQ(y.values(), plain_forward(c, in.x, in.weight));
}

TEST(activation, cost_follows_the_tables_formulas) {
  const double values = 10 * 8;
  const auto bytes = [](Activation kind, bool backward) {
    const Case c{kind, 10, 8, 10, false};
    return backward ? c.of<ActivationBackward>(Dtype::bf16).cost().bytes
                    : c.of<ActivationForward>(Dtype::bf16).cost().bytes;
  };
  EXPECT_EQ(bytes(Activation::squared_relu, false), 4 * values);
  EXPECT_EQ(bytes(Activation::swiglu, false), 6 * values);
  EXPECT_EQ(bytes(Activation::squared_relu, true), 6 * values);
  EXPECT_EQ(bytes(Activation::swiglu, true), 10 * values);
}

}  // namespace
}  // namespace stowage::kernels::test
