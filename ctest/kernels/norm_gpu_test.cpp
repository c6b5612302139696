// The norms on a GPU against the host reference in fp64 on inputs as rounded to storage.

#include "ctest/kernels/device_check.hpp"
#include "ctest/kernels/head_norm_problem.hpp"
#include "execution/error.hpp"
#include "kernels/norm/gated_rmsnorm.hpp"
#include "kernels/norm/rmsnorm.hpp"

namespace stowage::kernels::test {
namespace {

constexpr double kEps = 1e-5;

struct Sizes {
  std::int64_t n, width;
  bool residual, accumulate;
};

// One token, none, rows that are not whole packs, each size of team with whole and partly used
// packs, rows too wide for a team, and more rows than partial sums.
constexpr Sizes kSizes[] = {
    {1, 8, true, false},     {0, 16, true, false},    {0, 16, false, true},
    {3, 17, true, true},     {67, 2050, false, true}, {2500, 256, true, true},
    {300, 512, true, false}, {33, 776, false, false}, {1100, 2048, true, true},
    {31, 2688, true, true},  {19, 4096, true, false}, {9, 5000, false, true},
    {5, 16384, true, false}, {3, 20000, true, true},
};

class Rmsnorm {
 public:
  Rmsnorm(Dtype storage, const Sizes& s, const Values& x, const Values& delta, const Values& w,
          const Values& dy, const Values& old)
      : s_(s),
        sums_(execution::accumulation(storage)),
        x_(storage, {s.n, s.width}, x),
        delta_(s.residual ? Array(storage, {s.n, s.width}, delta) : Array()),
        w_(storage, {s.width}, w),
        dy_(storage, {s.n, s.width}, dy),
        sum_(s.residual ? Array(storage, {s.n, s.width}) : Array()),
        y_(storage, {s.n, s.width}),
        dx_(storage, {s.n, s.width}),
        rstd_(sums_, {s.n}),
        dw_(s.accumulate ? Array(sums_, {s.width}, old) : Array(sums_, {s.width})),
        room_(workspace(rmsnorm_backward_workspace_bytes(s.n, s.width, storage))) {}

  template <class At>
  void enqueue(Queue& q, At& at) const {
    add_rmsnorm_forward(q, at(x_), at(delta_), at(w_), at(sum_), at(y_), at(rstd_), kEps);
    rmsnorm_backward(q, at(dy_), at(s_.residual ? sum_ : x_), at(w_), at(rstd_), at(delta_),
                     at(dx_), at(dw_), at(room_), s_.accumulate);
  }
  std::vector<Output> outputs() const {
    const Dtype storage = x_.dtype();
    const auto width = static_cast<double>(s_.width);
    // The sum is rounded before its norm, so y and the gradients see two roundings to storage.
    const double rounding = s_.residual ? execution::epsilon(storage) : 0;
    std::vector<Output> all = {
        {"y", y_, tolerance(storage, width) + rounding},
        {"rstd", rstd_, tolerance(sums_, width) + rounding},
        {"dx", dx_, tolerance(storage, width) + rounding},
        {"dw", dw_, tolerance(sums_, width + static_cast<double>(s_.n)) + rounding}};
    if (s_.residual) all.push_back({"sum", sum_, tolerance(storage, 1)});
    return all;
  }

 private:
  Sizes s_;
  Dtype sums_;
  Array x_, delta_, w_, dy_, sum_, y_, dx_, rstd_, dw_, room_;
};

TEST(norm_gpu, rmsnorm_matches_fp64) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Sizes& s : kSizes)
    for (const Dtype storage : kDeviceTypes) {
      SCOPED_TRACE(testing::Message() << s.n << " x " << s.width);
      const Values x = rounded(random.normal(s.n * s.width, 3), storage);
      const Values delta = rounded(random.normal(s.n * s.width), storage);
      const Values w = rounded(random.normal(s.width), storage);
      const Values dy = rounded(random.normal(s.n * s.width), storage);
      const Values old = rounded(random.normal(s.width), Dtype::fp32);
      check_on_gpu(Rmsnorm(storage, s, x, delta, w, dy, old),
                   Rmsnorm(Dtype::fp64, s, x, delta, w, dy, old), s.n == 1100 ? 100 : 2);
    }
}

// In place: the sum over x, and dx over the residual's gradient.
TEST(norm_gpu, in_place_leaves_the_same_bits) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const std::int64_t width : {2048, 2051})
    for (const Dtype storage : kDeviceTypes) {
      const std::int64_t n = 37;
      const Array x(storage, {n, width}, random.normal(n * width));
      const Array delta(storage, {n, width}, random.normal(n * width));
      const Array w(storage, {width}, random.normal(width)), sum(storage, {n, width});
      const Array y(storage, {n, width}), dx(storage, {n, width}), rstd(Dtype::fp32, {n});
      const Array dw(Dtype::fp32, {width});
      const Array room = workspace(rmsnorm_backward_workspace_bytes(n, width, storage));
      const auto apart = on_gpu(
          [&](Queue& q, auto& at) {
            add_rmsnorm_forward(q, at(x), at(delta), at(w), at(sum), at(y), at(rstd), kEps);
            rmsnorm_backward(q, at(y), at(x), at(w), at(rstd), at(delta), at(dx), at(dw), at(room),
                             false);
          },
          {sum, y, dx});
      const auto together = on_gpu(
          [&](Queue& q, auto& at) {
            add_rmsnorm_forward(q, at(x), at(delta), at(w), at(delta), at(y), at(rstd), kEps);
          },
          {delta, y});
      const auto gradient = on_gpu(
          [&](Queue& q, auto& at) {
            add_rmsnorm_forward(q, at(x), at(delta), at(w), at(sum), at(y), at(rstd), kEps);
            rmsnorm_backward(q, at(y), at(x), at(w), at(rstd), at(delta), at(delta), at(dw),
                             at(room), false);
          },
          {delta});
      EXPECT_EQ(together[0].values(), apart[0].values());
      EXPECT_EQ(together[1].values(), apart[1].values());
      EXPECT_EQ(gradient[0].values(), apart[2].values());
    }
}

class HeadNormsOnBoth : public HeadNorms {
 public:
  HeadNormsOnBoth(Dtype storage, const Sizes& s, const Data& data)
      : HeadNorms(storage, s, data), storage_(storage), s_(s) {}

  std::vector<Output> outputs() const {
    const Dtype sums = execution::accumulation(storage_);
    const auto dim = static_cast<double>(s_.head_dim);
    const double terms = dim + static_cast<double>(s_.tokens * s_.heads);
    return {{"out", out, tolerance(storage_, dim)},
            {"din", din, tolerance(storage_, dim)},
            {"dq_weight", dq, tolerance(sums, terms)},
            {"dk_weight", dk, tolerance(sums, terms)}};
  }

 private:
  Dtype storage_;
  Sizes s_;
};

TEST(norm_gpu, head_rmsnorm_matches_fp64) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const HeadNorms::Sizes& s :
       {HeadNorms::Sizes{1, 1, 1, 2, false}, HeadNorms::Sizes{0, 2, 1, 8, true},
        HeadNorms::Sizes{67, 3, 1, 6, true}, HeadNorms::Sizes{300, 4, 2, 64, false},
        HeadNorms::Sizes{1100, 16, 4, 128, true}, HeadNorms::Sizes{33, 5, 5, 80, false}})
    for (const Dtype storage : kDeviceTypes) {
      SCOPED_TRACE(testing::Message() << s.tokens << " x " << s.heads << " x " << s.head_dim);
      const HeadNorms::Data data = HeadNorms::random_data(random, s, storage);
      check_on_gpu(HeadNormsOnBoth(storage, s, data), HeadNormsOnBoth(Dtype::fp64, s, data));
    }
}

struct GatedSizes {
  std::int64_t n, width, groups, before;  // columns before z in its tensor
  bool accumulate;
};

constexpr GatedSizes kGatedSizes[] = {
    {1, 8, 1, 0, false},      {0, 64, 4, 8, false},     {5, 18, 3, 3, true},
    {67, 40, 2, 5, false},    {400, 4096, 8, 16, true}, {37, 4096, 8, 3, false},
    {21, 1536, 2, 8, false},  {13, 2048, 1, 0, true},   {9, 3000, 1, 8, false},
    {7, 4096, 1, 8, true},    {5, 8192, 1, 8, false},   {3, 16384, 1, 8, true},
    {700, 5376, 8, 24, false}};

class Gated {
 public:
  Gated(Dtype storage, const GatedSizes& s, const Values& y, const Values& z, const Values& w,
        const Values& dout, const Values& old)
      : s_(s),
        sums_(execution::accumulation(storage)),
        y_(storage, {s.n, s.width}, y),
        z_(storage, {s.n, stride()}, z),
        w_(storage, {s.width}, w),
        dout_(storage, {s.n, s.width}, dout),
        out_(storage, {s.n, s.width}),
        dy_(storage, {s.n, s.width}),
        dz_(storage, {s.n, stride()}, Values(static_cast<std::size_t>(s.n * stride()), 7.0)),
        dw_(s.accumulate ? Array(sums_, {s.width}, old) : Array(sums_, {s.width})),
        room_(workspace(gated_rmsnorm_backward_workspace_bytes(s.n, s.width, storage))) {}

  template <class At>
  void enqueue(Queue& q, At& at) const {
    const Columns z{at(z_), s_.before, s_.width}, dz{at(dz_), s_.before, s_.width};
    gated_rmsnorm_forward(q, at(y_), z, at(w_), at(out_), s_.groups, kEps);
    gated_rmsnorm_backward(q, at(dout_), at(y_), z, at(w_), at(dy_), dz, at(dw_), at(room_),
                           s_.groups, kEps, s_.accumulate);
  }
  // The columns around dz hold 7 in both runs: a stray write shows.
  std::vector<Output> outputs() const {
    const double rounded_once = tolerance(y_.dtype(), static_cast<double>(s_.width));
    return {{"out", out_, rounded_once},
            {"dy", dy_, rounded_once},
            {"dz", dz_, rounded_once},
            {"dw", dw_, tolerance(sums_, static_cast<double>(s_.width + s_.n))}};
  }

  std::int64_t stride() const { return s_.before + s_.width + 8; }

 private:
  GatedSizes s_;
  Dtype sums_;
  Array y_, z_, w_, dout_, out_, dy_, dz_, dw_, room_;
};

TEST(norm_gpu, gated_rmsnorm_matches_fp64) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const GatedSizes& s : kGatedSizes)
    for (const Dtype storage : kDeviceTypes) {
      SCOPED_TRACE(testing::Message() << s.n << " x " << s.width << " in " << s.groups);
      const Values y = rounded(random.normal(s.n * s.width), storage);
      const Values z = rounded(random.normal(s.n * (s.before + s.width + 8)), storage);
      const Values w = rounded(random.normal(s.width), storage);
      const Values dout = rounded(random.normal(s.n * s.width), storage);
      const Values old = rounded(random.normal(s.width), Dtype::fp32);
      check_on_gpu(Gated(storage, s, y, z, w, dout, old), Gated(Dtype::fp64, s, y, z, w, dout, old),
                   s.n == 400 ? 100 : 2);
    }
}

// Two parts of one group: the sums of both, and what comes of them.
class SharedGroup {
 public:
  SharedGroup(Dtype storage, const GatedSizes& s, const Values& y, const Values& z, const Values& w,
              const Values& dout)
      : s_(s),
        sums_(execution::accumulation(storage)),
        y_(storage, {s.n, s.width}, y),
        z_(storage, {s.n, s.before + s.width + 8}, z),
        w_(storage, {s.width}, w),
        dout_(storage, {s.n, s.width}, dout),
        out_(storage, {s.n, s.width}),
        dy_(storage, {s.n, s.width}),
        dz_(storage, {s.n, s.width}),
        dw_(sums_, {s.width}),
        own_squares_(sums_, {1, s.n}),
        own_projections_(sums_, {1, s.n}),
        squares_(sums_, {2, s.n}, Values(static_cast<std::size_t>(2 * s.n), 50.0)),
        projections_(sums_, {2, s.n}, Values(static_cast<std::size_t>(2 * s.n), -3.0)),
        room_(workspace(gated_rmsnorm_backward_workspace_bytes(s.n, s.width, storage))) {}

  template <class At>
  void enqueue(Queue& q, At& at) const {
    const Columns z{at(z_), s_.before, s_.width}, dz{at(dz_), 0, s_.width};
    gated_squares(q, at(y_), z, at(own_squares_));
    gated_projections(q, at(dout_), at(y_), z, at(w_), at(own_projections_));
    const GroupShares shares{at(squares_), at(projections_), 0, 2};
    gated_rmsnorm_forward(q, at(y_), z, at(w_), at(out_), 1, kEps, shares);
    gated_rmsnorm_backward(q, at(dout_), at(y_), z, at(w_), at(dy_), dz, at(dw_), at(room_), 1,
                           kEps, false, shares);
  }
  std::vector<Output> outputs() const {
    const double once = tolerance(y_.dtype(), static_cast<double>(s_.width));
    const double wide = tolerance(sums_, static_cast<double>(s_.width + s_.n));
    return {{"squares", own_squares_, wide},
            {"projections", own_projections_, wide},
            {"out", out_, once},
            {"dy", dy_, once},
            {"dz", dz_, once},
            {"dw", dw_, wide}};
  }

 private:
  GatedSizes s_;
  Dtype sums_;
  Array y_, z_, w_, dout_, out_, dy_, dz_, dw_, own_squares_, own_projections_, squares_,
      projections_, room_;
};

TEST(norm_gpu, parts_of_a_group_match_fp64) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const GatedSizes& s : kGatedSizes)
    for (const Dtype storage : kDeviceTypes) {
      if (s.groups > 1 || s.n == 0) continue;
      SCOPED_TRACE(testing::Message() << s.n << " x " << s.width);
      const Values y = rounded(random.normal(s.n * s.width), storage);
      const Values z = rounded(random.normal(s.n * (s.before + s.width + 8)), storage);
      const Values w = rounded(random.normal(s.width), storage);
      const Values dout = rounded(random.normal(s.n * s.width), storage);
      check_on_gpu(SharedGroup(storage, s, y, z, w, dout),
                   SharedGroup(Dtype::fp64, s, y, z, w, dout));
    }
}

TEST(norm_gpu, saturated_gates_stay_finite) {
  STOWAGE_NEED_GPU();
  const GatedSizes s{1, 8, 1, 0, false};
  Random random;
  const Values v = random.normal(8);
  Values z(16, 1.0);
  z[0] = -200, z[1] = 200, z[2] = 0, z[3] = -88;
  const Gated run(Dtype::fp32, s, v, z, v, v, {});
  std::vector<Array> arrays;
  for (const Output& one : run.outputs()) arrays.push_back(one.array);
  for (const Array& result : on_gpu([&](Queue&q, auto&at) { run.enqueue(q, at); }, arrays))
    for (const double value : result.values()) EXPECT_TRUE(std::isfinite(value));
}

TEST(norm_gpu, fp64_is_refused) {
  STOWAGE_NEED_GPU();
  const Array x(Dtype::fp64, {2, 8}), w(Dtype::fp64, {8}), y(Dtype::fp64, {2, 8});
  const Array rstd(Dtype::fp64, {2});
  EXPECT_THROW(
      on_gpu([&](Queue& q,
                 auto& at) { add_rmsnorm_forward(q, at(x), {}, at(w), {}, at(y), at(rstd), kEps); },
             {y}),
      execution::Error);
}

}  // namespace
}  // namespace stowage::kernels::test
