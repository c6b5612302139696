#include <gtest/gtest.h>

#include <cmath>

#include "ctest/kernels/support.hpp"
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

void check_forward(Random& random, Sizes s, Dtype storage, bool residual) {
  const Values x = rounded(random.normal(s.n * s.width, 3), storage);
  const Values delta = residual ? rounded(random.normal(s.n * s.width), storage) : Values{};
  const Values w = rounded(random.normal(s.width), storage);
  const Array xs(storage, {s.n, s.width}, x), ws(storage, {s.width}, w);
  const Array deltas = residual ? Array(storage, {s.n, s.width}, delta) : Array();
  const Array sum = residual ? Array(storage, {s.n, s.width}) : Array();
  const Array y(storage, {s.n, s.width}), rstd(execution::accumulation(storage), {s.n});
  on_queue([&](Queue& q) { add_rmsnorm_forward(q, xs, deltas, ws, sum, y, rstd, kEps); });

  const Forward expected = plain_forward(s, storage, x, delta, w);
  const auto terms = static_cast<double>(s.width);
  if (residual) {
    EXPECT_LT(relative_error(sum.values(), expected.sum), tolerance(storage, 1));
  }
  EXPECT_LT(relative_error(y.values(), expected.y), tolerance(storage, terms));
  EXPECT_LT(relative_error(rstd.values(), expected.rstd),
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
  const Array x(Dtype::bf16, {1, 1}, Values{256}), delta(Dtype::bf16, {1, 1}, Values{1});
  const Array w(Dtype::bf16, {1}, Values{1}), sum(Dtype::bf16, {1, 1}), y(Dtype::bf16, {1, 1});
  const Array rstd(Dtype::fp32, {1});
  on_queue([&](Queue& q) { add_rmsnorm_forward(q, x, delta, w, sum, y, rstd, 0); });
  EXPECT_EQ(sum.values(), Values{256});
  EXPECT_EQ(rstd.values(), Values{1.0 / 256});
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
  const Dtype accumulation = execution::accumulation(storage);
  const Values dy = rounded(random.normal(s.n * s.width), storage);
  const Values x = rounded(random.normal(s.n * s.width, 3), storage);
  const Values w = rounded(random.normal(s.width), storage);
  const Values dresidual = residual ? rounded(random.normal(s.n * s.width), storage) : Values{};
  const Values old = rounded(random.normal(s.width), accumulation);
  const Array dys(storage, {s.n, s.width}, dy), xs(storage, {s.n, s.width}, x);
  const Array ws(storage, {s.width}, w), rstd(accumulation, {s.n}), y(storage, {s.n, s.width});
  const Array dresiduals = residual ? Array(storage, {s.n, s.width}, dresidual) : Array();
  const Array dx(storage, {s.n, s.width});
  const Array dw =
      accumulate ? Array(accumulation, {s.width}, old) : Array(accumulation, {s.width});
  const Array scratch = workspace(rmsnorm_backward_workspace_bytes(s.n, s.width, storage));
  on_queue([&](Queue& q) {
    add_rmsnorm_forward(q, xs, {}, ws, {}, y, rstd, kEps);
    rmsnorm_backward(q, dys, xs, ws, rstd, dresiduals, dx, dw, scratch, accumulate);
  });

  Gradients expected = plain_backward(s, dy, x, w, dresidual);
  for (std::size_t j = 0; accumulate && j < old.size(); ++j) expected.dw[j] += old[j];
  EXPECT_LT(relative_error(dx.values(), expected.dx),
            tolerance(storage, static_cast<double>(s.width)));
  EXPECT_LT(relative_error(dw.values(), expected.dw),
            tolerance(accumulation, static_cast<double>(s.n + s.width)));
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
  const Values x = random.normal(s.n * s.width), w = random.normal(s.width);
  const Values dy = random.normal(s.n * s.width), dsum = random.normal(s.n * s.width);
  const auto loss = [&](const Values& xs, const Values& ws) {
    Values y(x.size()), sum(x.size()), rstd(index(s.n));
    const Values zero(x.size(), 0.0);
    add_rmsnorm_forward_ref(s.n, s.width, xs.data(), zero.data(), ws.data(), sum.data(), y.data(),
                            rstd.data(), kEps);
    return dot(dy, y) + dot(dsum, sum);
  };
  Values y(x.size()), rstd(index(s.n)), dx(x.size()), dw(w.size());
  add_rmsnorm_forward_ref<double>(s.n, s.width, x.data(), nullptr, w.data(), nullptr, y.data(),
                                  rstd.data(), kEps);
  Values partials(rmsnorm_backward_workspace_bytes(s.n, s.width, Dtype::fp64) / sizeof(double));
  rmsnorm_backward_ref(s.n, s.width, dy.data(), x.data(), w.data(), rstd.data(), dsum.data(),
                       dx.data(), dw.data(), partials.data(), false);
  const auto loss_of_x = [&](const Values& v) { return loss(v, w); };
  const auto loss_of_w = [&](const Values& v) { return loss(x, v); };
  EXPECT_LT(relative_error(dx, numeric_gradient(x, loss_of_x)), 1e-7);
  EXPECT_LT(relative_error(dw, numeric_gradient(w, loss_of_w)), 1e-7);
}

TEST(norm, threads_do_not_change_bits) {
  Random random;
  const Sizes s{1000, 77};
  const Array dy(Dtype::fp32, {s.n, s.width}, random.normal(s.n * s.width));
  const Array x(Dtype::fp32, {s.n, s.width}, random.normal(s.n * s.width));
  const Array w(Dtype::fp32, {s.width}, random.normal(s.width));
  const Array rstd(Dtype::fp32, {s.n}, random.uniform(s.n, 0.5, 2));
  const Array dx(Dtype::fp32, {s.n, s.width}), parallel(Dtype::fp32, {s.width});
  const Array serial(Dtype::fp32, {s.width});
  const Array scratch = workspace(rmsnorm_backward_workspace_bytes(s.n, s.width, Dtype::fp32));
  on_queue(
      [&](Queue& q) { rmsnorm_backward(q, dy, x, w, rstd, {}, dx, parallel, scratch, false); });
  // On this thread the loops are serial.
  std::vector<float> partials(scratch.size() / sizeof(float));
  rmsnorm_backward_ref<float>(s.n, s.width, dy.as<float>().data(), x.as<float>().data(),
                              w.as<float>().data(), rstd.as<float>().data(), nullptr,
                              dx.as<float>().data(), serial.as<float>().data(), partials.data(),
                              false);
  EXPECT_EQ(parallel.values(), serial.values());
}

TEST(norm, dx_may_be_dresidual) {
  Random random;
  const Sizes s{9, 20};
  const Values x = random.normal(s.n * s.width), w = random.normal(s.width);
  const Values dy = random.normal(s.n * s.width), residual = random.normal(s.n * s.width);
  const Values rstd = random.uniform(s.n, 0.5, 2);
  Values apart(x.size()), together = residual, dw(w.size()), partials(w.size());
  rmsnorm_backward_ref(s.n, s.width, dy.data(), x.data(), w.data(), rstd.data(), residual.data(),
                       apart.data(), dw.data(), partials.data(), false);
  rmsnorm_backward_ref(s.n, s.width, dy.data(), x.data(), w.data(), rstd.data(), together.data(),
                       together.data(), dw.data(), partials.data(), false);
  EXPECT_EQ(apart, together);
}

TEST(norm, cost_follows_the_tables_formulas) {
  const double n = 10, c = 8;
  EXPECT_EQ(add_rmsnorm_forward_cost(10, 8, Dtype::bf16, false).bytes, 4 * n * c + 2 * c + 4 * n);
  EXPECT_EQ(add_rmsnorm_forward_cost(10, 8, Dtype::bf16, true).bytes, 8 * n * c + 2 * c + 4 * n);
  EXPECT_EQ(rmsnorm_backward_cost(10, 8, Dtype::bf16, false).bytes, 6 * n * c + 6 * c + 4 * n);
}

}  // namespace
}  // namespace stowage::kernels::test
