#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <tuple>

#include "ctest/kernels/support.hpp"
#include "execution/error.hpp"
#include "kernels/norm/gated_rmsnorm.hpp"

namespace stowage::kernels::test {
namespace {

constexpr double kEps = 1e-5;
constexpr std::int64_t kBefore = 3, kAfter = 5;  // columns of the in_proj output around z

struct Sizes {
  std::int64_t n, width, groups;
  std::int64_t stride() const { return kBefore + width + kAfter; }
};

constexpr Sizes kSizes[] = {{1, 2, 1}, {5, 18, 3}, {67, 40, 2}, {130, 192, 8}};

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

// z as columns of a wider matrix whose other columns are `fill`.
Values widened(Sizes s, const Values& z, double fill) {
  Values wide(index(s.n * s.stride()), fill);
  for (std::int64_t i = 0; i < s.n; ++i)
    for (std::int64_t j = 0; j < s.width; ++j)
      wide[index(i * s.stride() + kBefore + j)] = z[index(i * s.width + j)];
  return wide;
}

Values narrowed(Sizes s, const Values& wide) {
  Values z(index(s.n * s.width));
  for (std::int64_t i = 0; i < s.n; ++i)
    for (std::int64_t j = 0; j < s.width; ++j)
      z[index(i * s.width + j)] = wide[index(i * s.stride() + kBefore + j)];
  return z;
}

double plain_silu(double z) { return z / (1 + std::exp(-z)); }

// The definition, in fp64.
Values plain_forward(Sizes s, const Values& y, const Values& z, const Values& w) {
  Values out(y.size());
  const std::int64_t size = s.width / s.groups;
  for (std::int64_t i = 0; i < s.n; ++i)
    for (std::int64_t g = 0; g < s.groups; ++g) {
      const std::int64_t first = i * s.width + g * size;
      double squares = 0;
      for (std::int64_t j = first; j < first + size; ++j)
        squares += std::pow(y[index(j)] * plain_silu(z[index(j)]), 2);
      const double rstd = 1 / std::sqrt(squares / static_cast<double>(size) + kEps);
      for (std::int64_t j = first; j < first + size; ++j)
        out[index(j)] = y[index(j)] * plain_silu(z[index(j)]) * rstd * w[index(j - i * s.width)];
    }
  return out;
}

struct Inputs {
  Inputs(Random& random, Sizes s, Dtype storage)
      : y(rounded(random.normal(s.n * s.width), storage)),
        z(rounded(random.normal(s.n * s.width), storage)),
        w(rounded(random.normal(s.width), storage)),
        dout(rounded(random.normal(s.n * s.width), storage)) {}
  Values y, z, w, dout;
};

TEST(gated_norm, forward_matches_definition) {
  Random random;
  for (const Sizes& s : kSizes)
    for (const Dtype storage : kFloatingTypes) {
      const Inputs in(random, s, storage);
      const Array y(storage, {s.n, s.width}, in.y), w(storage, {s.width}, in.w);
      const Array z(storage, {s.n, s.stride()}, widened(s, in.z, NAN));
      const Array out(storage, {s.n, s.width});
      on_queue([&](Queue& q) {
        gated_rmsnorm_forward(q, y, z.columns(kBefore, s.width), w, out, s.groups, kEps);
      });
      EXPECT_LT(relative_error(out.values(), plain_forward(s, in.y, in.z, in.w)),
                tolerance(storage, static_cast<double>(s.width)));
    }
}

struct Gradients {
  Values dy, dz, dw;
};

// Through the queue, on z and dz inside wider tensors; the columns around dz must not change.
Gradients backward(Sizes s, Dtype storage, const Inputs& in, const Values& old_dw,
                   const GroupShares& shares = {}) {
  const Dtype accumulation = execution::accumulation(storage);
  const bool accumulate = !old_dw.empty();
  const Array y(storage, {s.n, s.width}, in.y), w(storage, {s.width}, in.w);
  const Array z(storage, {s.n, s.stride()}, widened(s, in.z, NAN));
  const Array dout(storage, {s.n, s.width}, in.dout), dy(storage, {s.n, s.width});
  const Array dz(storage, {s.n, s.stride()}, Values(index(s.n * s.stride()), 7.0));
  const Array dw =
      accumulate ? Array(accumulation, {s.width}, old_dw) : Array(accumulation, {s.width});
  const Array scratch = workspace(gated_rmsnorm_backward_workspace_bytes(s.n, s.width, storage));
  on_queue([&](Queue& q) {
    gated_rmsnorm_backward(q, dout, y, z.columns(kBefore, s.width), w, dy,
                           dz.columns(kBefore, s.width), dw, scratch, s.groups, kEps, accumulate,
                           shares);
  });
  Gradients g{dy.values(), narrowed(s, dz.values()), dw.values()};
  EXPECT_EQ(dz.values(), widened(s, g.dz, 7.0));
  return g;
}

TEST(gated_norm, gradients_match_finite_differences) {
  Random random;
  const Sizes s{4, 12, 3};
  const Inputs in(random, s, Dtype::fp64);
  const Gradients g = backward(s, Dtype::fp64, in, {});
  const auto loss = [&](const Values& y, const Values& z, const Values& w) {
    return dot(in.dout, plain_forward(s, y, z, w));
  };
  const auto of_y = [&](const Values& v) { return loss(v, in.z, in.w); };
  const auto of_z = [&](const Values& v) { return loss(in.y, v, in.w); };
  const auto of_w = [&](const Values& v) { return loss(in.y, in.z, v); };
  EXPECT_LT(relative_error(g.dy, numeric_gradient(in.y, of_y)), 1e-7);
  EXPECT_LT(relative_error(g.dz, numeric_gradient(in.z, of_z)), 1e-7);
  EXPECT_LT(relative_error(g.dw, numeric_gradient(in.w, of_w)), 1e-7);
}

TEST(gated_norm, backward_in_low_precision_matches_fp64) {
  Random random;
  for (const Sizes& s : kSizes) {
    if (s.width == 2) continue;  // of two values the projection takes one away: mostly rounding
    for (const Dtype storage : {Dtype::fp32, Dtype::bf16}) {
      const Inputs in(random, s, storage);
      const Gradients g = backward(s, storage, in, {});
      const Gradients expected = backward(s, Dtype::fp64, in, {});
      const auto terms = static_cast<double>(s.width);
      EXPECT_LT(relative_error(g.dy, expected.dy), tolerance(storage, terms));
      EXPECT_LT(relative_error(g.dz, expected.dz), tolerance(storage, terms));
      EXPECT_LT(relative_error(g.dw, expected.dw),
                tolerance(execution::accumulation(storage), terms + static_cast<double>(s.n)));
    }
  }
}

TEST(gated_norm, accumulate_adds_to_dw) {
  Random random;
  const Sizes s{70, 24, 2};
  const Inputs in(random, s, Dtype::fp64);
  const Values old = random.normal(s.width);
  const Gradients stored = backward(s, Dtype::fp64, in, {});
  Values expected = stored.dw;
  for (std::size_t j = 0; j < old.size(); ++j) expected[j] += old[j];
  const Gradients added = backward(s, Dtype::fp64, in, old);
  EXPECT_LT(relative_error(added.dw, expected), tolerance(Dtype::fp64, 70));
  EXPECT_EQ(added.dy, stored.dy);
}

TEST(gated_norm, saturated_gates_stay_finite) {
  const Sizes s{1, 4, 1};
  Random random;
  Inputs in(random, s, Dtype::fp32);
  in.z = {-200, 200, 0, 1};
  const Gradients g = backward(s, Dtype::fp32, in, {});
  for (const Values* values : {&g.dy, &g.dz, &g.dw})
    for (const double value : *values) EXPECT_TRUE(std::isfinite(value));
}

/// The columns of one of `count` equal parts.
Values part_of(const Values& all, std::int64_t n, int part, int count) {
  const std::int64_t width = static_cast<std::int64_t>(all.size()) / n, own = width / count;
  Values columns;
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < own; ++j)
      columns.push_back(all[index(i * width + part * own + j)]);
  return columns;
}

// Ranks that have parts of a group compute what one does that has it, from the sums of all; the
// sums of other groups lie beside them.
TEST(gated_norm, parts_of_a_group_equal_the_whole) {
  Random random;
  for (const auto& [n, width, count, storage] :
       {std::tuple{5, 18, 3, Dtype::fp64}, {67, 40, 2, Dtype::fp32}, {33, 64, 8, Dtype::bf16}}) {
    const Sizes s{n, width, 1}, own{n, width / count, 1};
    const Inputs in(random, s, storage);
    const Values out = plain_forward(s, in.y, in.z, in.w);
    const Gradients whole = backward(s, Dtype::fp64, in, {});
    const Dtype sums = execution::accumulation(storage);
    const int before = 2;  // parts of another group
    const Array squares(sums, {before + count, n}, Values(index((before + count) * n), NAN));
    const Array projections(sums, {before + count, n}, Values(index((before + count) * n), NAN));
    std::vector<Inputs> parts;
    for (int p = 0; p < count; ++p) {
      Inputs& part = parts.emplace_back(in);
      part.y = part_of(in.y, n, p, count);
      part.z = part_of(in.z, n, p, count);
      part.w = part_of(in.w, 1, p, count);
      part.dout = part_of(in.dout, n, p, count);
      const Array y(storage, {n, own.width}, part.y), w(storage, {own.width}, part.w);
      const Array z(storage, {n, own.stride()}, widened(own, part.z, NAN));
      const Array dout(storage, {n, own.width}, part.dout);
      const Array square(sums, {1, n}), projection(sums, {1, n});
      on_queue([&](Queue& q) {
        gated_squares(q, y, z.columns(kBefore, own.width), square);
        gated_projections(q, dout, y, z.columns(kBefore, own.width), w, projection);
      });
      const std::size_t bytes = index(n) * execution::size_bytes(sums);
      const std::size_t at = index(before + p) * bytes;
      std::memcpy(squares.as<std::byte>().data() + at, square.as<std::byte>().data(), bytes);
      std::memcpy(projections.as<std::byte>().data() + at, projection.as<std::byte>().data(),
                  bytes);
    }
    for (int p = 0; p < count; ++p) {
      SCOPED_TRACE(testing::Message() << "part " << p << " of " << count);
      const GroupShares shares{squares, projections, before, count};
      const Array y(storage, {n, own.width}, parts[index(p)].y);
      const Array z(storage, {n, own.stride()}, widened(own, parts[index(p)].z, NAN));
      const Array w(storage, {own.width}, parts[index(p)].w), result(storage, {n, own.width});
      on_queue([&](Queue& q) {
        gated_rmsnorm_forward(q, y, z.columns(kBefore, own.width), w, result, 1, kEps, shares);
      });
      const double bound = tolerance(storage, static_cast<double>(width));
      EXPECT_LT(relative_error(result.values(), part_of(out, n, p, count)), bound);
      const Gradients g = backward(own, storage, parts[index(p)], {}, shares);
      EXPECT_LT(relative_error(g.dy, part_of(whole.dy, n, p, count)), bound);
      EXPECT_LT(relative_error(g.dz, part_of(whole.dz, n, p, count)), bound);
      EXPECT_LT(relative_error(g.dw, part_of(whole.dw, 1, p, count)),
                tolerance(sums, static_cast<double>(width + n)));
    }
  }
}

TEST(gated_norm, parts_that_are_none_are_refused) {
  const Array y(Dtype::fp32, {4, 6}), w(Dtype::fp32, {6}), out(Dtype::fp32, {4, 6});
  const Array squares(Dtype::fp32, {3, 4});
  const auto run = [&](std::int64_t groups, int first, int count) {
    on_queue([&](Queue& q) {
      gated_rmsnorm_forward(q, y, y.columns(0, 6), w, out, groups, kEps,
                            {squares, {}, first, count});
    });
  };
  EXPECT_NO_THROW(run(1, 1, 2));
  EXPECT_THROW(run(2, 0, 2), execution::Error) << "several groups on a rank";
  EXPECT_THROW(run(1, 2, 2), execution::Error) << "a part behind the last one";
}

TEST(gated_norm, cost_counts_each_operand_once) {
  EXPECT_EQ(gated_rmsnorm_forward_cost(10, 8, Dtype::bf16).bytes, 3 * 2.0 * 80 + 2 * 8);
  EXPECT_EQ(gated_rmsnorm_backward_cost(10, 8, Dtype::bf16).bytes, 5 * 2.0 * 80 + 2 * 8 + 4 * 8);
}

}  // namespace
}  // namespace stowage::kernels::test
