// The norms on a GPU against the host reference in fp64 on inputs as rounded to storage.

#include "ctest/kernels/head_norm_problem.hpp"
#include "ctest/kernels/measured.hpp"
#include "ctest/kernels/operator_check.hpp"
#include "execution/error.hpp"
#include "kernels/norm/gated_rmsnorm.hpp"
#include "kernels/norm/mean_squares.hpp"
#include "kernels/norm/rmsnorm.hpp"

namespace stowage::kernels::test {
namespace {

constexpr double kEps = 1e-5;

struct Sizes {
  std::int64_t n, width;
  bool residual, accumulate;
  bool zero_centred = false;

  AddRmsnormForward forward(Dtype storage) const {
    return {.rows = n,
            .width = width,
            .storage = storage,
            .residual = residual,
            .eps = kEps,
            .zero_centred = zero_centred};
  }
  RmsnormBackward backward(Dtype storage) const {
    return {.rows = n,
            .width = width,
            .storage = storage,
            .residual = residual,
            .accumulate = accumulate,
            .zero_centred = zero_centred};
  }
};

// One token, none, rows that are not whole packs, each size of team with whole and partly used
// packs, rows too wide for a team, and more rows than partial sums.
constexpr Sizes kSizes[] = {
    {1, 8, true, false},       {0, 16, true, false},    {0, 16, false, true},
    {3, 17, true, true},       {67, 2050, false, true}, {2500, 256, true, true},
    {300, 512, true, false},   {33, 776, false, false}, {1100, 2048, true, true},
    {31, 2688, true, true},    {19, 4096, true, false}, {9, 5000, false, true},
    {5, 16384, true, false},   {3, 20000, true, true},  {300, 2048, true, true, true},
    {3, 17, true, true, true},
};

// What a forward leaves for the gradient, made on the host.
Arrays<RmsnormBackward> after_forward(const Sizes& s, Dtype storage, Random& random) {
  const Arrays<RmsnormBackward> o = make_arrays(s.backward(storage), random);
  set(o.x, random.normal(s.n * s.width, 3));
  Sizes of_sum = s;
  of_sum.residual = false;
  run(of_sum.forward(storage), {.x = o.x,
                                .delta = {},
                                .w = o.w,
                                .sum = {},
                                .y = Array(storage, {s.n, s.width}),
                                .rstd = o.rstd,
                                .amax = {}});
  return o;
}

TEST(norm_gpu, rmsnorm_matches_fp64) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Sizes& s : kSizes)
    for (const Dtype storage : kDeviceTypes) {
      SCOPED_TRACE(testing::Message() << s.n << " x " << s.width);
      const int replays = s.n == 1100 ? 100 : 2;
      const auto width = static_cast<double>(s.width);
      const Dtype sums = execution::accumulation(storage);
      // The sum is rounded before its norm, so y sees two roundings to storage.
      const double rounding = s.residual ? execution::epsilon(storage) : 0;
      const Arrays<AddRmsnormForward> forward = make_arrays(s.forward(storage), random);
      set(forward.x, random.normal(s.n * s.width, 3));
      check_on_gpu(
          s.forward(storage), forward,
          [&](std::string_view name) {
            if (name == "sum") return tolerance(storage, 1);
            return tolerance(name == "rstd" ? sums : storage, width) + rounding;
          },
          replays);
      check_on_gpu(
          s.backward(storage), after_forward(s, storage, random),
          [&](std::string_view name) {
            return name == "dw" ? tolerance(sums, width + static_cast<double>(s.n))
                                : tolerance(storage, width);
          },
          replays);
    }
}

// In place: the sum over x or delta, and dx over the residual's gradient.
TEST(norm_gpu, in_place_leaves_the_same_bits) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const std::int64_t width : {2048, 2051})
    for (const Dtype storage : kDeviceTypes) {
      const Sizes s{37, width, true, false};
      const AddRmsnormForward forward = s.forward(storage);
      const Arrays<AddRmsnormForward> f = make_arrays(forward, random);
      Arrays<AddRmsnormForward> over = f;
      over.sum = f.delta;
      const auto apart = on_gpu(forward, f, {f.sum, f.y});
      const auto together = on_gpu(forward, over, {over.sum, over.y});
      EXPECT_EQ(together[0].values(), apart[0].values());
      EXPECT_EQ(together[1].values(), apart[1].values());

      const Arrays<RmsnormBackward> b = after_forward(s, storage, random);
      Arrays<RmsnormBackward> in_place = b;
      in_place.dx = b.dresidual;
      EXPECT_EQ(on_gpu(s.backward(storage), in_place, {in_place.dx})[0].values(),
                on_gpu(s.backward(storage), b, {b.dx})[0].values());
    }
}

// On a GPU.
template <Operator Op, class Output>
void expect_measured_there(const Op& op, const Arrays<Op>& arrays, Output Arrays<Op>::*output) {
  expect_measured(op, arrays, output,
                  [](const Op& one, const Arrays<Op>& o, const std::vector<Array>& outputs) {
                    return on_gpu(one, o, outputs);
                  });
}

TEST(norm_gpu, the_largest_magnitude_is_that_of_what_is_stored) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Sizes& s : kSizes)
    for (const Dtype storage : kDeviceTypes) {
      SCOPED_TRACE(testing::Message() << s.n << " x " << s.width);
      const AddRmsnormForward forward = s.forward(storage);
      expect_measured_there(forward, make_arrays(forward, random), &Arrays<AddRmsnormForward>::y);
      expect_measured_there(s.backward(storage), after_forward(s, storage, random),
                            &Arrays<RmsnormBackward>::dx);
    }
}

TEST(norm_gpu, mean_squares_match_fp64) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const std::int64_t rows : {0, 1, 67, 5000}) {
    const MeanSquares op{rows, Dtype::bf16, kEps};
    const Arrays<MeanSquares> o = make_arrays(op, random);
    set(o.rstd, random.uniform(rows, 0.1, 2));
    const double bound = tolerance(Dtype::fp32, static_cast<double>(rows + 1), 16);
    check_on_gpu(op, o, [&](std::string_view) { return bound; });
  }
}

TEST(norm_gpu, head_rmsnorm_matches_fp64) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const HeadNormSizes& s :
       {HeadNormSizes{1, 1, 1, 2, false}, HeadNormSizes{0, 2, 1, 8, true},
        HeadNormSizes{67, 3, 1, 6, true}, HeadNormSizes{300, 4, 2, 64, false},
        HeadNormSizes{1100, 16, 4, 128, true}, HeadNormSizes{33, 5, 5, 80, false}})
    for (const Dtype storage : kDeviceTypes) {
      SCOPED_TRACE(testing::Message() << s.tokens << " x " << s.heads << " x " << s.head_dim);
      const auto dim = static_cast<double>(s.head_dim);
      const double of_weights = tolerance(execution::accumulation(storage),
                                          dim + static_cast<double>(s.tokens * s.heads));
      const Tolerances bound = [&](std::string_view name) {
        return name == "out" || name == "din" ? tolerance(storage, dim) : of_weights;
      };
      const HeadRmsnormForward forward = s.forward(storage);
      const HeadRmsnormBackward backward = s.backward(storage);
      check_on_gpu(forward, head_norm_arrays(forward, random), bound, 3);
      check_on_gpu(backward, head_norm_arrays(backward, random), bound, 3);
    }
}

struct GatedSizes {
  std::int64_t n, width, groups, before;  // columns before z in its tensor
  bool accumulate;

  GatedRmsnormForward forward(Dtype storage, const GroupShares& shares = {}) const {
    return {.rows = n,
            .width = width,
            .groups = groups,
            .storage = storage,
            .eps = kEps,
            .shares = shares};
  }
  GatedRmsnormBackward backward(Dtype storage, const GroupShares& shares = {}) const {
    return {.rows = n,
            .width = width,
            .groups = groups,
            .storage = storage,
            .eps = kEps,
            .accumulate = accumulate,
            .shares = shares};
  }
  // What is stored is rounded once; dw and the sums of parts are sums.
  Tolerances bound(Dtype storage) const {
    return [*this, storage](std::string_view name) {
      const auto columns = static_cast<double>(width);
      if (name == "out" || name == "dy" || name == "dz") return tolerance(storage, columns);
      return tolerance(execution::accumulation(storage), columns + static_cast<double>(n));
    };
  }
};

constexpr GatedSizes kGatedSizes[] = {
    {1, 8, 1, 0, false},      {0, 64, 4, 8, false},     {5, 18, 3, 3, true},
    {67, 40, 2, 5, false},    {400, 4096, 8, 16, true}, {37, 4096, 8, 3, false},
    {21, 1536, 2, 8, false},  {13, 2048, 1, 0, true},   {9, 3000, 1, 8, false},
    {7, 4096, 1, 8, true},    {5, 8192, 1, 8, false},   {3, 16384, 1, 8, true},
    {700, 5376, 8, 24, false}};

TEST(norm_gpu, gated_rmsnorm_matches_fp64) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const GatedSizes& s : kGatedSizes)
    for (const Dtype storage : kDeviceTypes) {
      SCOPED_TRACE(testing::Message() << s.n << " x " << s.width << " in " << s.groups);
      const int replays = s.n == 400 ? 100 : 2;
      const GatedRmsnormForward forward = s.forward(storage);
      const GatedRmsnormBackward backward = s.backward(storage);
      check_on_gpu(forward, make_arrays(forward, random, s.before), s.bound(storage), replays);
      check_on_gpu(backward, make_arrays(backward, random, s.before), s.bound(storage), replays);
    }
}

TEST(norm_gpu, the_largest_magnitude_of_gated_rmsnorm_is_that_of_what_is_stored) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const GatedSizes& s : kGatedSizes)
    for (const Dtype storage : kDeviceTypes) {
      SCOPED_TRACE(testing::Message() << s.n << " x " << s.width << " in " << s.groups);
      const GatedRmsnormForward forward = s.forward(storage);
      expect_measured_there(forward, make_arrays(forward, random, s.before),
                            &Arrays<GatedRmsnormForward>::out);
      const GatedRmsnormBackward backward = s.backward(storage);
      expect_measured_there(backward, make_arrays(backward, random, s.before),
                            &Arrays<GatedRmsnormBackward>::dz);
    }
}

// Two parts of one group: the sums of both, and what comes of them.
TEST(norm_gpu, parts_of_a_group_match_fp64) {
  STOWAGE_NEED_GPU();
  Random random;
  const GroupShares shares{.parts = 2, .first = 0, .count = 2};
  for (const GatedSizes& s : kGatedSizes)
    for (const Dtype storage : kDeviceTypes) {
      if (s.groups > 1 || s.n == 0) continue;
      SCOPED_TRACE(testing::Message() << s.n << " x " << s.width);
      const Values squares(static_cast<std::size_t>(2 * s.n), 50.0);
      const Values projections(squares.size(), -3.0);
      const GatedSquares sum{.rows = s.n, .width = s.width, .storage = storage};
      const GatedProjections projection{.rows = s.n, .width = s.width, .storage = storage};
      check_on_gpu(sum, make_arrays(sum, random, s.before), s.bound(storage));
      check_on_gpu(projection, make_arrays(projection, random, s.before), s.bound(storage));
      const GatedRmsnormForward forward = s.forward(storage, shares);
      const Arrays<GatedRmsnormForward> f = make_arrays(forward, random, s.before);
      set(f.squares, squares);
      check_on_gpu(forward, f, s.bound(storage));
      const GatedRmsnormBackward backward = s.backward(storage, shares);
      const Arrays<GatedRmsnormBackward> b = make_arrays(backward, random, s.before);
      set(b.squares, squares);
      set(b.projections, projections);
      check_on_gpu(backward, b, s.bound(storage));
    }
}

TEST(norm_gpu, saturated_gates_stay_finite) {
  STOWAGE_NEED_GPU();
  Random random;
  const GatedSizes s{1, 8, 1, 0, false};
  const GatedRmsnormForward forward = s.forward(Dtype::fp32);
  const GatedRmsnormBackward op = s.backward(Dtype::fp32);
  const Arrays<GatedRmsnormBackward> o = make_arrays(op, random, 0);
  set(o.z, {-200, 200, 0, -88, 1, 1, 1, 1});
  const Array out(Dtype::fp32, {1, 8});
  for (const Array& result : on_gpu(
           forward, {.y = o.y, .z = o.z, .w = o.w, .squares = {}, .out = out, .amax = {}}, {out}))
    for (const double value : result.values()) EXPECT_TRUE(std::isfinite(value));
  for (const Array& result : on_gpu(op, o, {o.dy, o.dz.whole, o.dw}))
    for (const double value : result.values()) EXPECT_TRUE(std::isfinite(value));
}

TEST(norm_gpu, fp64_is_refused) {
  STOWAGE_NEED_GPU();
  Random random;
  const AddRmsnormForward op = Sizes{2, 8, false, false}.forward(Dtype::fp64);
  const Arrays<AddRmsnormForward> o = make_arrays(op, random);
  EXPECT_THROW(on_gpu(op, o, {o.y}), execution::Error);
}

}  // namespace
}  // namespace stowage::kernels::test
