// The products with activation on a GPU: against the host's in fp64, and bit by bit against the
// product and the activation apart.

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "ctest/kernels/device_array.hpp"
#include "ctest/kernels/grouped_mlp_problem.hpp"
#include "kernels/grouped_mlp/grouped_linear.hpp"

namespace stowage::kernels::test {
namespace {

// A problem's arrays in device memory.
struct OnDevice {
  explicit OnDevice(const MlpProblem& p)
      : x(p.x),
        dy(p.dy),
        w1(p.w1),
        w2(p.w2),
        offsets(p.offsets),
        row_weight(p.row_weight),
        h(p.h),
        a(p.a),
        dh(p.dh),
        a_again(p.a_again),
        drow_weight(p.drow_weight) {
    if (p.room.view()) room.emplace(p.room);
  }
  View workspace() const { return room ? room->view() : View{}; }

  DeviceArray x, dy, w1, w2, offsets, row_weight, h, a, dh, a_again, drow_weight;
  std::optional<DeviceArray> room;
};

void enqueue(Queue& q, Activation kind, const OnDevice& d) {
  grouped_fc1_forward(q, kind, d.x, d.w1, d.offsets, d.row_weight, d.h, d.a);
  grouped_fc2_backward_input(q, kind, fc2_backward_operands(d, d.workspace()));
}

// Rows of no expert are not to be read.
void spoil(const Array& array, std::int64_t from) {
  Values values = array.values();
  std::fill(values.begin() + from, values.end(), std::nan(""));
  Array shared = array;  // of the same bytes
  shared.set(values);
}

double error(const Array& actual, const Array& expected, std::int64_t count) {
  const Values left = actual.values(), right = expected.values();
  return relative_error({left.begin(), left.begin() + count},
                        {right.begin(), right.begin() + count});
}

// How much larger the terms of drow_weight = sum_f g_f act(h_f) are, by norm, than the sums: each
// g_f is rounded, and in few columns the terms may nearly cancel.
double cancellation(const MlpProblem& exact, const ExpertCase& c) {
  const Array g(Dtype::fp64, {c.rows(), c.f});
  on_queue([&](Queue& q) {
    grouped_linear_backward_input(q, exact.dy, exact.w2, exact.offsets, g);  // of every row
  });
  const Values gradient = g.values(), weighted = exact.a_again.values();
  const Values weight = exact.row_weight.values(), sum = exact.drow_weight.values();
  double terms = 0, sums = 0;
  for (std::int64_t row = 0; row < c.valid(); ++row) {
    const auto r = static_cast<std::size_t>(row), width = static_cast<std::size_t>(c.f);
    for (std::size_t i = r * width; i < (r + 1) * width; ++i) {
      const double term = gradient[i] * weighted[i] / weight[r];
      terms += term * term;
    }
    sums += sum[r] * sum[r];
  }
  return sums > 0 ? std::max(1.0, std::sqrt(terms / sums)) : 1;
}

void check(Random& random, const ExpertCase& c, Activation kind, Dtype storage) {
  SCOPED_TRACE(std::to_string(c.experts()) + " experts, " + std::to_string(c.valid()) + " + " +
               std::to_string(c.spare) + " rows, D " + std::to_string(c.d) + ", F " +
               std::to_string(c.f) + ", " + std::string(execution::name(storage)) +
               (kind == Activation::swiglu ? ", swiglu" : ", squared relu"));
  const MlpProblem p(c, kind, storage, random);
  spoil(p.x, c.valid() * c.d);
  spoil(p.dy, c.valid() * c.d);
  const OnDevice d(p), apart(p);
  const DeviceArray g(Array(storage, {c.rows(), c.f}));
  const ValidRows valid{.counts = c.experts() + 1, .index = c.experts()};
  on_gpu_queue([&](Queue& q) {
    enqueue(q, kind, d);
    grouped_linear_forward(q, apart.x, apart.w1, apart.offsets, apart.h);
    ActivationForward{kind, c.rows(), c.f, storage, true, valid}.run(
        q,
        {.x = apart.h, .row_weight = apart.row_weight, .y = apart.a, .valid_rows = apart.offsets});
    grouped_linear_backward_input(q, apart.dy, apart.w2, apart.offsets, g);
    ActivationBackward{kind, c.rows(), c.f, storage, true, valid}.run(
        q, {.dy = g,
            .x = apart.h,
            .row_weight = apart.row_weight,
            .dx = apart.dh,
            .drow_weight = apart.drow_weight,
            .valid_rows = apart.offsets});
  });
  const std::int64_t hidden = c.valid() * p.hidden, columns = c.valid() * c.f;
  EXPECT_TRUE(same(d.h.host(), apart.h.host(), hidden));
  EXPECT_TRUE(same(d.a.host(), apart.a.host(), columns));
  EXPECT_TRUE(same(d.dh.host(), apart.dh.host(), hidden));
  EXPECT_TRUE(same(d.a_again.host(), apart.a.host(), columns));
  EXPECT_TRUE(poisoned(d.h.host(), hidden) && poisoned(d.a.host(), columns));
  EXPECT_TRUE(poisoned(d.dh.host(), hidden) && poisoned(d.a_again.host(), columns));
  EXPECT_TRUE(poisoned(d.drow_weight.host(), c.valid()));
  if (c.valid() == 0) return;

  // The host in fp64, from h as the device stored it: activations amplify its rounding.
  MlpProblem exact(c, kind, Dtype::fp64, random);
  for (const auto member :
       {&MlpProblem::x, &MlpProblem::dy, &MlpProblem::w1, &MlpProblem::w2, &MlpProblem::row_weight})
    (exact.*member).set((p.*member).values());
  const Array h = d.h.host();
  on_queue([&](Queue& q) {
    grouped_fc1_forward(q, kind, exact.x, exact.w1, exact.offsets, exact.row_weight, exact.h,
                        exact.a);
  });
  EXPECT_LT(error(h, exact.h, hidden), tolerance(storage, static_cast<double>(c.d)));
  exact.h.set(h.values());
  on_queue([&](Queue& q) {
    grouped_fc2_backward_input(q, kind, fc2_backward_operands(exact, exact.room));
  });
  // g and dh round once each; drow_weight sums F products of a rounded g.
  const double twice = 2 * tolerance(storage, static_cast<double>(c.d + c.f));
  EXPECT_LT(error(d.a.host(), exact.a_again, columns), twice);
  EXPECT_LT(error(d.dh.host(), exact.dh, hidden), twice);
  EXPECT_LT(error(d.drow_weight.host(), exact.drow_weight, c.valid()),
            cancellation(exact, c) * twice);
}

TEST(grouped_mlp_gpu, matches_its_parts_and_the_host) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Activation kind : kKinds) {
    check(random, {{1}, 0, 8, 8}, kind, Dtype::bf16);
    check(random, {{3, 0, 130, 64}, 5, 88, 72}, kind, Dtype::bf16);
    check(random, {{200, 1, 0, 77, 300}, 9, 328, 416}, kind, Dtype::bf16);
    check(random, {{127, 129, 191, 193, 0, 2}, 7, 192, 544}, kind, Dtype::bf16);
    check(random, {{385, 0, 128, 448, 320}, 3, 192, 336}, kind, Dtype::bf16);
    check(random, {{2180, 2320}, 3, 64, 376}, kind, Dtype::bf16);
    check(random, {{0, 0, 0}, 3, 64, 192}, kind, Dtype::bf16);
    // Columns that end in one or two tiles of fc2's gradient narrower than the others.
    check(random, {{64, 65, 0, 150}, 3, 136, 448}, kind, Dtype::bf16);
    check(random, {{16, 141}, 2, 72, 256}, kind, Dtype::bf16);
    check(random, {{130}, 0, 200, 1160}, kind, Dtype::bf16);
  }
}

// A row has the same bits in tiles of both shapes, but for drow_weight, whose sums are by tiles.
TEST(grouped_mlp_gpu, same_bits_in_tall_tiles) {
  STOWAGE_NEED_GPU();
  Random random;
  constexpr std::int64_t kFew = 150;  // 129 to 192 of an expert's last rows are in tall tiles
  for (const Activation kind : kKinds) {
    for (const std::int64_t f : {352, 384}) {
      const MlpProblem all({{256}, 0, 320, f}, kind, Dtype::bf16, random);
      MlpProblem few = all;
      few.offsets = int32_array({0, kFew});
      const OnDevice flat(all), tall(few);
      on_gpu_queue([&](Queue& q) {
        enqueue(q, kind, flat);
        enqueue(q, kind, tall);
      });
      EXPECT_TRUE(same(tall.h.host(), flat.h.host(), kFew * all.hidden));
      EXPECT_TRUE(same(tall.a.host(), flat.a.host(), kFew * f));
      EXPECT_TRUE(same(tall.dh.host(), flat.dh.host(), kFew * all.hidden));
      EXPECT_TRUE(same(tall.a_again.host(), flat.a_again.host(), kFew * f));
    }
  }
}

TEST(grouped_mlp_gpu, odd_extents_and_fp32) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Activation kind : kKinds)
    for (const Dtype storage : {Dtype::bf16, Dtype::fp32})
      check(random, {{5, 0, 130}, 5, 90, 70}, kind, storage);
}

TEST(grouped_mlp_gpu, same_bits_in_every_run_and_replay) {
  STOWAGE_NEED_GPU();
  Random random;
  const ExpertCase c{{300, 17, 0, 128, 90, 250, 3}, 4, 320, 264};
  for (const Activation kind : kKinds) {
    const MlpProblem p(c, kind, Dtype::bf16, random);
    const OnDevice d(p), first(p);
    on_gpu_queue([&](Queue& q) { enqueue(q, kind, first); });
    int different = 0;
    on_gpu_queue([&](Queue& q) { enqueue(q, kind, d); }, 100,
                 [&] {
                   different += !same(d.h.host(), first.h.host(), c.valid() * p.hidden) ||
                                !same(d.a.host(), first.a.host(), c.valid() * c.f) ||
                                !same(d.dh.host(), first.dh.host(), c.valid() * p.hidden) ||
                                !same(d.a_again.host(), first.a_again.host(), c.valid() * c.f) ||
                                !same(d.drow_weight.host(), first.drow_weight.host(), c.valid());
                   for (const DeviceArray* array : {&d.h, &d.a, &d.dh, &d.a_again, &d.drow_weight})
                     array->upload();
                 });
    EXPECT_EQ(different, 0);
  }
}

}  // namespace
}  // namespace stowage::kernels::test
