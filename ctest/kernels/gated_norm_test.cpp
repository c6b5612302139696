#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <tuple>

#include "ctest/kernels/measured.hpp"
#include "execution/error.hpp"
#include "kernels/norm/gated_rmsnorm.hpp"

namespace stowage::kernels::test {
namespace {

constexpr double kEps = 1e-5;
struct Sizes {
  std::int64_t n, width, groups;
};

constexpr Sizes kSizes[] = {{1, 2, 1}, {5, 18, 3}, {67, 40, 2}, {130, 192, 8}};

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

GatedRmsnormForward forward_of(Sizes s, Dtype storage, const GroupShares& shares = {}) {
  return {.rows = s.n,
          .width = s.width,
          .groups = s.groups,
          .storage = storage,
          .eps = kEps,
          .shares = shares};
}

GatedRmsnormBackward backward_of(Sizes s, Dtype storage, bool accumulate,
                                 const GroupShares& shares = {}) {
  return {.rows = s.n,
          .width = s.width,
          .groups = s.groups,
          .storage = storage,
          .eps = kEps,
          .accumulate = accumulate,
          .shares = shares};
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
      const GatedRmsnormForward op = forward_of(s, storage);
      const Arrays<GatedRmsnormForward> o = make_arrays(op, random);
      run(op, o);
      EXPECT_LT(
          relative_error(o.out.values(), plain_forward(s, o.y.values(), values(o.z), o.w.values())),
          tolerance(storage, static_cast<double>(s.width)));
    }
}

TEST(gated_norm, the_largest_magnitude_is_that_of_what_is_stored) {
  Random random;
  for (const Sizes& s : kSizes)
    for (const Dtype storage : kFloatingTypes) {
      const GatedRmsnormForward forward = forward_of(s, storage);
      expect_measured(forward, make_arrays(forward, random), &Arrays<GatedRmsnormForward>::out);
      const GatedRmsnormBackward backward = backward_of(s, storage, false);
      expect_measured(backward, make_arrays(backward, random), &Arrays<GatedRmsnormBackward>::dz);
    }
}

struct Gradients {
  Values dy, dz, dw;
};

// On z and dz inside wider tensors; the columns around dz must not change.
Gradients backward(Random& random, Sizes s, Dtype storage, const Inputs& in, const Values& old_dw,
                   const GroupShares& shares = {}, const Array& squares = {},
                   const Array& projections = {}) {
  const GatedRmsnormBackward op = backward_of(s, storage, !old_dw.empty(), shares);
  Arrays<GatedRmsnormBackward> o = make_arrays(op, random);
  set(o.y, in.y);
  set(o.z, in.z);
  set(o.w, in.w);
  set(o.dout, in.dout);
  o.squares = squares, o.projections = projections;
  if (op.accumulate) set(o.dw, old_dw);
  run(op, o);
  const Values dz = values(o.dz);
  set(o.dz, Values(dz.size(), 7.0));
  EXPECT_EQ(o.dz.whole.values(), Values(o.dz.whole.size(), 7.0));
  return {o.dy.values(), dz, o.dw.values()};
}

TEST(gated_norm, gradients_match_finite_differences) {
  Random random;
  const Sizes s{4, 12, 3};
  const Inputs in(random, s, Dtype::fp64);
  const Gradients g = backward(random, s, Dtype::fp64, in, {});
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
      const Gradients g = backward(random, s, storage, in, {});
      const Gradients expected = backward(random, s, Dtype::fp64, in, {});
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
  const Gradients stored = backward(random, s, Dtype::fp64, in, {});
  Values expected = stored.dw;
  for (std::size_t j = 0; j < old.size(); ++j) expected[j] += old[j];
  const Gradients added = backward(random, s, Dtype::fp64, in, old);
  EXPECT_LT(relative_error(added.dw, expected), tolerance(Dtype::fp64, 70));
  EXPECT_EQ(added.dy, stored.dy);
}

TEST(gated_norm, saturated_gates_stay_finite) {
  const Sizes s{1, 4, 1};
  Random random;
  Inputs in(random, s, Dtype::fp32);
  in.z = {-200, 200, 0, 1};
  const Gradients g = backward(random, s, Dtype::fp32, in, {});
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
    const Gradients whole = backward(random, s, Dtype::fp64, in, {});
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
      const GatedProjections projects{.rows = n, .width = own.width, .storage = storage};
      const Arrays<GatedProjections> o = make_arrays(projects, random);
      set(o.dout, part.dout);
      set(o.y, part.y);
      set(o.z, part.z);
      set(o.w, part.w);
      const Array square(sums, {1, n}), &projection = o.projections;
      run(projects, o);
      run(GatedSquares{.rows = n, .width = own.width, .storage = storage},
          {.y = o.y, .z = o.z, .squares = square});
      const std::size_t bytes = index(n) * execution::size_bytes(sums);
      const std::size_t at = index(before + p) * bytes;
      std::memcpy(squares.as<std::byte>().data() + at, square.as<std::byte>().data(), bytes);
      std::memcpy(projections.as<std::byte>().data() + at, projection.as<std::byte>().data(),
                  bytes);
    }
    for (int p = 0; p < count; ++p) {
      SCOPED_TRACE(testing::Message() << "part " << p << " of " << count);
      const GroupShares shares{.parts = before + count, .first = before, .count = count};
      const GatedRmsnormForward op = forward_of(own, storage, shares);
      Arrays<GatedRmsnormForward> o = make_arrays(op, random);
      set(o.y, parts[index(p)].y);
      set(o.z, parts[index(p)].z);
      set(o.w, parts[index(p)].w);
      o.squares = squares;
      run(op, o);
      const double bound = tolerance(storage, static_cast<double>(width));
      EXPECT_LT(relative_error(o.out.values(), part_of(out, n, p, count)), bound);
      const Gradients g =
          backward(random, own, storage, parts[index(p)], {}, shares, squares, projections);
      EXPECT_LT(relative_error(g.dy, part_of(whole.dy, n, p, count)), bound);
      EXPECT_LT(relative_error(g.dz, part_of(whole.dz, n, p, count)), bound);
      EXPECT_LT(relative_error(g.dw, part_of(whole.dw, 1, p, count)),
                tolerance(sums, static_cast<double>(width + n)));
    }
  }
}

TEST(gated_norm, parts_that_are_none_are_refused) {
  Random random;
  const auto run_parts = [&](std::int64_t groups, int first, int count) {
    const GatedRmsnormForward op = forward_of({4, 6, groups}, Dtype::fp32, {3, first, count});
    run(op, make_arrays(op, random));
  };
  EXPECT_NO_THROW(run_parts(1, 1, 2));
  EXPECT_THROW(run_parts(2, 0, 2), execution::Error) << "several groups on a rank";
  EXPECT_THROW(run_parts(1, 2, 2), execution::Error) << "a part behind the last one";
}

TEST(gated_norm, cost_counts_each_operand_once) {
  const Sizes s{10, 8, 1};
  EXPECT_EQ(forward_of(s, Dtype::bf16).cost().bytes, 3 * 2.0 * 80 + 2 * 8);
  EXPECT_EQ(backward_of(s, Dtype::bf16, false).cost().bytes, 5 * 2.0 * 80 + 2 * 8 + 4 * 8);
}

}  // namespace
}  // namespace stowage::kernels::test
