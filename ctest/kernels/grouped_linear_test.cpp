#include <gtest/gtest.h>

#include <cmath>

#include "ctest/kernels/expert_case.hpp"
#include "ctest/kernels/operator_arrays.hpp"
#include "kernels/grouped_mlp/grouped_linear.hpp"

namespace stowage::kernels::test {
namespace {

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

using Case = ExpertCase;

std::vector<Case> cases() {
  return {{{1}, 0, 1, 1},
          {{3, 0, 5, 0}, 4, 7, 9},
          {{0, 0, 0}, 6, 4, 5},
          {{140, 1, 0, 33}, 2, 21, 1030}};
}

struct Inputs {
  Inputs(Random& random, const Case& c, Dtype storage)
      : x(rounded(random.normal(c.rows() * c.f), storage)),
        w(rounded(random.normal(c.experts() * c.d * c.f), storage)),
        dy(rounded(random.normal(c.rows() * c.d), storage)),
        // Of one sign and larger than most sums: nothing cancels.
        old_dx(rounded(random.uniform(c.rows() * c.f, 20, 30), storage)),
        old_dw(rounded(random.uniform(c.experts() * c.d * c.f, 20, 30),
                       execution::accumulation(storage))) {
    std::fill(x.begin() + c.valid() * c.f, x.end(), NAN);  // rows of no expert: never read
    std::fill(dy.begin() + c.valid() * c.d, dy.end(), NAN);
  }
  Values x, w, dy, old_dx, old_dw;
};

// Visits every product term: (expert, row, output, input).
template <class Visit>
void for_each_term(const Case& c, Visit visit) {
  const std::vector<std::int32_t> offsets = c.offsets();
  for (std::int64_t e = 0; e < c.experts(); ++e)
    for (std::int64_t row = offsets[index(e)]; row < offsets[index(e + 1)]; ++row)
      for (std::int64_t m = 0; m < c.d; ++m)
        for (std::int64_t k = 0; k < c.f; ++k)
          visit(index((e * c.d + m) * c.f + k), index(row * c.d + m), index(row * c.f + k));
}

Values leading(Values values, std::int64_t count) {
  values.resize(index(count));
  return values;
}

// The rows from `count` on are still poison.
void expect_untouched(const Values& values, std::int64_t count) {
  for (std::size_t i = index(count); i < values.size(); ++i)
    ASSERT_TRUE(std::isnan(values[i])) << "element " << i << " was written";
}

void check(Random& random, const Case& c, Dtype storage) {
  const Dtype accumulation = execution::accumulation(storage);
  const Inputs in(random, c, storage);
  const Array x(storage, {c.rows(), c.f}, in.x), w(storage, {c.experts(), c.d, c.f}, in.w);
  const Array dy(storage, {c.rows(), c.d}, in.dy), y(storage, {c.rows(), c.d});
  const Array dx(storage, {c.rows(), c.f}), more_dx(storage, {c.rows(), c.f}, in.old_dx);
  const Array dw(accumulation, {c.experts(), c.d, c.f});
  const Array more_dw(accumulation, {c.experts(), c.d, c.f}, in.old_dw);
  const Array offsets = int32_array(c.offsets());
  run(c.product<GroupedLinearForward>(storage), {.x = x, .w = w, .offsets = offsets, .y = y});
  for (const bool accumulate : {false, true}) {
    run(c.product<GroupedLinearBackwardInput>(storage, accumulate),
        {.dy = dy, .w = w, .offsets = offsets, .dx = accumulate ? more_dx : dx});
    run(c.product<GroupedLinearBackwardWeight>(storage, accumulate),
        {.dy = dy, .x = x, .offsets = offsets, .dw = accumulate ? more_dw : dw});
  }

  Values plain_y(index(c.valid() * c.d), 0.0), plain_dx(index(c.valid() * c.f), 0.0);
  Values plain_dw(in.w.size(), 0.0);
  Values plain_more_dx = in.old_dx, plain_more_dw = in.old_dw;
  for_each_term(c, [&](std::size_t iw, std::size_t iy, std::size_t ix) {
    plain_y[iy] += in.x[ix] * in.w[iw];
    plain_dx[ix] += in.dy[iy] * in.w[iw];
    plain_more_dx[ix] += in.dy[iy] * in.w[iw];
    plain_dw[iw] += in.dy[iy] * in.x[ix];
    plain_more_dw[iw] += in.dy[iy] * in.x[ix];
  });
  const double k = static_cast<double>(c.f), m = static_cast<double>(c.d);
  const auto n = static_cast<double>(c.rows());
  expect_untouched(y.values(), c.valid() * c.d);
  expect_untouched(dx.values(), c.valid() * c.f);
  EXPECT_LE(relative_error(leading(y.values(), c.valid() * c.d), plain_y), tolerance(storage, k));
  EXPECT_LE(relative_error(leading(dx.values(), c.valid() * c.f), plain_dx), tolerance(storage, m));
  EXPECT_LE(relative_error(more_dx.values(), plain_more_dx), tolerance(storage, m));
  EXPECT_LE(relative_error(dw.values(), plain_dw), tolerance(accumulation, n));
  EXPECT_LE(relative_error(more_dw.values(), plain_more_dw), tolerance(accumulation, n));
}

TEST(grouped_linear, products_match_loops) {
  Random random;
  for (const Case& c : cases())
    for (const Dtype storage : kFloatingTypes) check(random, c, storage);
}

TEST(grouped_linear, an_empty_expert_has_no_gradient) {
  Random random;
  const Case c{{2, 0, 3}, 0, 4, 5};
  const Inputs in(random, c, Dtype::bf16);
  const Array x(Dtype::bf16, {c.rows(), c.f}, in.x), dy(Dtype::bf16, {c.rows(), c.d}, in.dy);
  const Array dw(Dtype::fp32, {3, c.d, c.f}), more_dw(Dtype::fp32, {3, c.d, c.f}, in.old_dw);
  for (const bool accumulate : {false, true})
    run(c.product<GroupedLinearBackwardWeight>(Dtype::bf16, accumulate),
        {.dy = dy, .x = x, .offsets = int32_array(c.offsets()), .dw = accumulate ? more_dw : dw});
  for (std::size_t i = 20; i < 40; ++i) {
    EXPECT_EQ(dw.values()[i], 0);
    EXPECT_EQ(more_dw.values()[i], in.old_dw[i]);
  }
}

TEST(grouped_linear, gradients_match_finite_differences) {
  Random random;
  const Case c{{2, 0, 3}, 0, 3, 4};
  const Inputs in(random, c, Dtype::fp64);
  const std::vector<std::int32_t> offsets = c.offsets();
  const auto loss = [&](const Values& x, const Values& w) {
    Values y(in.dy.size());
    c.product<GroupedLinearForward>(Dtype::fp64)
        .reference<double>(
            {.x = x.data(), .w = w.data(), .offsets = offsets.data(), .y = y.data()});
    return dot(in.dy, y);
  };
  Values dx(in.x.size()), dw(in.w.size());
  c.product<GroupedLinearBackwardInput>(Dtype::fp64)
      .reference<double>(
          {.dy = in.dy.data(), .w = in.w.data(), .offsets = offsets.data(), .dx = dx.data()});
  c.product<GroupedLinearBackwardWeight>(Dtype::fp64)
      .reference<double>(
          {.dy = in.dy.data(), .x = in.x.data(), .offsets = offsets.data(), .dw = dw.data()});
  const auto loss_of_x = [&](const Values& v) { return loss(v, in.w); };
  const auto loss_of_w = [&](const Values& v) { return loss(in.x, v); };
  EXPECT_LT(relative_error(dx, numeric_gradient(in.x, loss_of_x)), 1e-8);
  EXPECT_LT(relative_error(dw, numeric_gradient(in.w, loss_of_w)), 1e-8);
}

TEST(grouped_linear, cost_follows_the_tables_formulas) {
  const double rows = 10, e = 3, f = 4, h = 5;
  const Case c{{3, 3, 4}, 0, 4, 5};
  const execution::Cost cost = c.product<GroupedLinearForward>(Dtype::bf16).cost();
  EXPECT_EQ(cost.flops, 2 * rows * h * f);
  EXPECT_EQ(cost.bytes, 2 * (rows * h + e * h * f + rows * f));
  EXPECT_EQ(c.product<GroupedLinearBackwardWeight>(Dtype::bf16, true).cost().bytes,
            2 * (rows * h + rows * f) + 2 * 4 * e * h * f);
}

}  // namespace
}  // namespace stowage::kernels::test
