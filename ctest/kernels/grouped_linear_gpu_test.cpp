// The grouped products on a GPU against the host's in fp64, on inputs as rounded to storage.

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "ctest/kernels/expert_case.hpp"
#include "ctest/kernels/operator_check.hpp"
#include "kernels/grouped_mlp/grouped_linear.hpp"

namespace stowage::kernels::test {
namespace {

// y (rows, D) = x (rows, F) w[e]^T and its gradients; rows of no expert hold NaN and are never to
// be read.
struct Problem {
  Problem(const ExpertCase& made, Dtype storage, Random& random)
      : c(made),
        x(storage, {c.rows(), c.f}, spoiled(random.normal(c.rows() * c.f), c.valid() * c.f)),
        dy(storage, {c.rows(), c.d}, spoiled(random.normal(c.rows() * c.d), c.valid() * c.d)),
        w(storage, {c.experts(), c.d, c.f}, random.normal(c.experts() * c.d * c.f)),
        offsets(int32_array(c.offsets())),
        y(storage, {c.rows(), c.d}),
        dx(storage, {c.rows(), c.f}),
        more_dx(storage, {c.rows(), c.f}, random.normal(c.rows() * c.f)),
        dw(execution::accumulation(storage), {c.experts(), c.d, c.f}),
        more_dw(dw.dtype(), {c.experts(), c.d, c.f}, random.normal(c.experts() * c.d * c.f)) {}

  static Values spoiled(Values values, std::int64_t valid) {
    std::fill(values.begin() + valid, values.end(), std::numeric_limits<double>::quiet_NaN());
    return values;
  }

  /// The same values in fp64, outputs poisoned.
  Problem in_fp64() const {
    Random unused;
    Problem p(c, Dtype::fp64, unused);
    for (const auto member :
         {&Problem::x, &Problem::dy, &Problem::w, &Problem::more_dx, &Problem::more_dw})
      (p.*member).set((this->*member).values());
    return p;
  }

  template <class At>
  void enqueue_rows(Queue& q, At& at) const {
    enqueue(q, c.product<GroupedLinearForward>(x.dtype()),
            {.x = x, .w = w, .offsets = offsets, .y = y}, at);
    for (const bool accumulate : {false, true})
      enqueue(q, c.product<GroupedLinearBackwardInput>(x.dtype(), accumulate),
              {.dy = dy, .w = w, .offsets = offsets, .dx = accumulate ? more_dx : dx}, at);
  }
  template <class At>
  void enqueue_weights(Queue& q, At& at) const {
    for (const bool accumulate : {false, true})
      enqueue(q, c.product<GroupedLinearBackwardWeight>(x.dtype(), accumulate),
              {.dy = dy, .x = x, .offsets = offsets, .dw = accumulate ? more_dw : dw}, at);
  }
  std::vector<Values> values_on_gpu(int replays) const {
    std::vector<Values> all;
    for (const Array& array : on_gpu(
             [&](Queue&q, auto&at) {
               enqueue_rows(q, at);
               enqueue_weights(q, at);
             },
             {y, dx, more_dx, dw, more_dw}, replays))
      all.push_back(array.values());
    return all;
  }

  ExpertCase c;
  Array x, dy, w, offsets, y, dx, more_dx, dw, more_dw;
};

// The rows that experts own agree, the others are as they were.
void compare_rows(const char* what, const Array& before, const Values& actual,
                  const Array& expected, std::int64_t valid, double tolerance) {
  const auto end = [&](const Values& v) { return v.begin() + valid; };
  const Values reference = expected.values();
  if (valid > 0) {
    EXPECT_LT(relative_error({actual.begin(), end(actual)}, {reference.begin(), end(reference)}),
              tolerance)
        << what;
  }
  const Values old = before.values();
  for (auto i = static_cast<std::size_t>(valid); i < actual.size(); ++i)
    ASSERT_TRUE(actual[i] == old[i] || (std::isnan(actual[i]) && std::isnan(old[i])))
        << what << " beyond the last expert, element " << i;
}

void check(Random& random, const ExpertCase& c, Dtype storage) {
  SCOPED_TRACE(std::to_string(c.experts()) + " experts, " + std::to_string(c.valid()) + " + " +
               std::to_string(c.spare) + " rows, D " + std::to_string(c.d) + ", F " +
               std::to_string(c.f) + ", " + std::string(execution::name(storage)));
  const Problem p(c, storage, random);
  const Problem exact = p.in_fp64();
  on_queue([&](Queue& q) {
    const auto here = [](const Array& array) { return array.view(); };
    exact.enqueue_rows(q, here);
    exact.enqueue_weights(q, here);
  });
  const std::vector<Values> out = p.values_on_gpu(0);

  const auto f = static_cast<double>(c.f), d = static_cast<double>(c.d);
  compare_rows("y", p.y, out[0], exact.y, c.valid() * c.d, tolerance(storage, f));
  compare_rows("dx", p.dx, out[1], exact.dx, c.valid() * c.f, tolerance(storage, d));
  compare_rows("dx +=", p.more_dx, out[2], exact.more_dx, c.valid() * c.f, tolerance(storage, d));
  const double rows = *std::max_element(c.counts.begin(), c.counts.end());
  const double of_sums = tolerance(Dtype::fp32, std::max(rows, 1.0));
  const Values zeros(exact.dw.size(), 0);
  if (c.valid() > 0)
    EXPECT_LT(relative_error(out[3], exact.dw.values()), of_sums);
  else
    EXPECT_EQ(out[3], zeros);
  EXPECT_LT(relative_error(out[4], exact.more_dw.values()), of_sums);
  // Experts without rows: zero when stored, untouched when added to.
  const Values old = p.more_dw.values();
  const auto size = static_cast<std::size_t>(c.d * c.f);
  for (std::size_t e = 0; e < c.counts.size(); ++e) {
    for (std::size_t i = e * size; i < (e + 1) * size && c.counts[e] == 0; ++i) {
      ASSERT_EQ(out[3][i], 0);
      ASSERT_EQ(out[4][i], old[i]);
    }
  }
}

std::vector<std::int32_t> random_counts(Random& random, int experts, std::int64_t largest) {
  std::vector<std::int32_t> counts;
  for (int e = 0; e < experts; ++e)
    counts.push_back(static_cast<std::int32_t>(random.integer(0, largest)));
  return counts;
}

TEST(grouped_linear_gpu, ragged_experts) {
  STOWAGE_NEED_GPU();
  Random random;
  check(random, {{1}, 0, 8, 8}, Dtype::bf16);
  check(random, {{3, 0, 130, 64}, 5, 72, 88}, Dtype::bf16);
  check(random, {{200, 1, 0, 77, 300}, 9, 416, 328}, Dtype::bf16);
  check(random, {{1, 2, 3, 0, 127, 129, 191, 193}, 7, 176, 208}, Dtype::bf16);
  // Last stages of a weight gradient with so many rows, which are multiplied 16 by 16.
  check(random, {{15, 16, 17, 32, 33, 48, 49, 80, 97, 160}, 7, 176, 208}, Dtype::bf16);
}

TEST(grouped_linear_gpu, whole_tiles) {
  STOWAGE_NEED_GPU();
  Random random;
  check(random, {{128, 256, 64, 0, 512}, 0, 384, 512}, Dtype::bf16);
  check(random, {{128, 256, 64, 0, 512}, 0, 384, 256}, Dtype::bf16);  // tall tiles of the gradient
  check(random, {{64, 70}, 0, 576, 2304}, Dtype::bf16);  // 18 of them beside each other
}

// Extents whose last tiles are narrower than the others, of every width that is compiled.
TEST(grouped_linear_gpu, narrow_tiles) {
  STOWAGE_NEED_GPU();
  Random random;
  check(random, {{200, 1, 0, 77, 300}, 9, 400, 368}, Dtype::bf16);
  check(random, {{130, 64}, 0, 608, 336}, Dtype::bf16);
  check(random, {{130, 0, 7}, 3, 200, 400}, Dtype::bf16);
}

// Experts whose last rows are few: tiles of another shape among the others, in both products over
// rows and beside tiles of every width that is compiled; with more rows of tiles than stand in one
// group, and in whole groups.
TEST(grouped_linear_gpu, tall_tiles) {
  STOWAGE_NEED_GPU();
  Random random;
  const std::vector<std::int32_t> counts{128, 129, 192, 0, 193, 256, 257, 320, 1, 321, 448};
  check(random, {counts, 5, 352, 384}, Dtype::bf16);
  check(random, {counts, 0, 384, 416}, Dtype::bf16);
  check(random, {counts, 9, 416, 352}, Dtype::bf16);
  check(random, {counts, 0, 144, 1000}, Dtype::bf16);
  check(random, {{130, 2200, 2330}, 7, 200, 392}, Dtype::bf16);
}

// A row has the same bits in tiles of both shapes: of so many rows all are in flat ones, of as many
// fewer the last 129 to 192 in tall ones.
TEST(grouped_linear_gpu, same_bits_in_tall_tiles) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const auto& [rows, fewer] : {std::pair{256, 150}, std::pair{384, 300}}) {
    for (const std::int64_t d : {352, 384, 416}) {
      const Problem all({{rows}, 0, d, 768 - d}, Dtype::bf16, random);
      Problem few = all;
      few.offsets = int32_array({0, fewer});
      const auto rows_on_gpu = [](const Problem& p) {
        return on_gpu([&](Queue& q, auto& at) { p.enqueue_rows(q, at); }, {p.y, p.dx, p.more_dx},
                      0);
      };
      const std::vector<Array> flat = rows_on_gpu(all), tall = rows_on_gpu(few);
      for (std::size_t i = 0; i < flat.size(); ++i) {
        const Values left = tall[i].values(), right = flat[i].values();
        const std::int64_t count = fewer * flat[i].view().extent(1);
        EXPECT_TRUE(std::equal(left.begin(), left.begin() + count, right.begin())) << i;
      }
    }
  }
}

// Rows of experts from `most` down as 1 / (e + 1), in a mixed order.
std::vector<std::int32_t> falling_counts(int experts, int most) {
  std::vector<std::int32_t> counts;
  for (int e = 0; e < experts; ++e) counts.push_back(most / (1 + e * 7 % experts));
  return counts;
}

// Long experts, short ones and some without rows: the blocks of a weight gradient are given tiles
// by what they have to do, and divide into groups unless an expert has over four times the average.
TEST(grouped_linear_gpu, unequal_experts) {
  STOWAGE_NEED_GPU();
  Random random;
  check(random, {{1400, 70, 900, 65, 400, 380, 0, 64}, 3, 384, 392}, Dtype::bf16);
  check(random, {{1900, 80, 1100, 65, 700, 0, 64}, 0, 392, 256}, Dtype::bf16);
  check(random, {falling_counts(40, 700), 5, 320, 256}, Dtype::bf16);
  check(random, {{0, 1400, 0, 70, 0, 65, 64, 0}, 0, 384, 392}, Dtype::bf16);
}

// Stored weight gradients of a few long experts among short ones, whose tiles leave between pieces
// of the long ones: several tiles a block; short ones that end first, that last, and hardly any.
TEST(grouped_linear_gpu, long_tiles_in_pieces) {
  STOWAGE_NEED_GPU();
  Random random;
  check(random, {{70, 3, 200, 1500, 0, 130, 1, 64}, 5, 1160, 1800}, Dtype::bf16);
  check(random, {{500, 2000, 1, 0, 400, 0, 300, 0}, 0, 1536, 1100}, Dtype::bf16);
  check(random, {falling_counts(20, 1300), 3, 776, 904}, Dtype::bf16);
  ExpertCase short_ones{random_counts(random, 30, 190), 0, 576, 904};
  short_ones.counts[9] = 700;
  check(random, short_ones, Dtype::bf16);
}

// What is stored in pieces has the bits of whole tiles, which is how the same load is added to.
TEST(grouped_linear_gpu, same_bits_in_pieces) {
  STOWAGE_NEED_GPU();
  Random random;
  Problem p({{70, 3, 200, 1500, 0, 130, 1, 64}, 5, 1160, 1800}, Dtype::bf16, random);
  p.more_dw.set(Values(p.more_dw.values().size(), 0.0));
  const std::vector<Array> sums =
      on_gpu([&](Queue& q, auto& at) { p.enqueue_weights(q, at); }, {p.dw, p.more_dw}, 0);
  EXPECT_EQ(sums[0].values(), sums[1].values());
}

// None has a quarter more rows than the average: a weight gradient takes them in the order of
// memory, and those without rows last.
TEST(grouped_linear_gpu, experts_of_about_as_many_rows) {
  STOWAGE_NEED_GPU();
  Random random;
  ExpertCase c{random_counts(random, 40, 20), 3, 256, 328};
  for (std::int32_t& rows : c.counts) rows += 120;
  c.counts[0] = c.counts[17] = 0;
  check(random, c, Dtype::bf16);
  check(random, {{450, 0, 460, 440, 470, 448, 452}, 0, 392, 248}, Dtype::bf16);
}

// Row counts for which the way out of a weight gradient has more or fewer slots.
TEST(grouped_linear_gpu, long_experts) {
  STOWAGE_NEED_GPU();
  Random random;
  check(random, {{500, 600, 450}, 0, 320, 256}, Dtype::bf16);
  check(random, {{1000, 900}, 3, 320, 264}, Dtype::bf16);
}

// Rows of a weight gradient that take two launches, and three.
TEST(grouped_linear_gpu, experts_too_long_for_one_sum) {
  STOWAGE_NEED_GPU();
  Random random;
  check(random, {{300, 40000, 0}, 5, 64, 72}, Dtype::bf16);
  check(random, {{65537}, 0, 72, 64}, Dtype::bf16);
  ExpertCase pieces{std::vector<std::int32_t>(64, 10), 0, 64, 72};
  pieces.counts[5] = 33000;
  check(random, pieces, Dtype::bf16);
}

TEST(grouped_linear_gpu, many_unequal_experts) {
  STOWAGE_NEED_GPU();
  Random random;
  check(random, {falling_counts(150, 3000), 0, 256, 136}, Dtype::bf16);
  check(random, {falling_counts(500, 400), 3, 64, 48}, Dtype::bf16);
}

TEST(grouped_linear_gpu, no_rows) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Dtype storage : {Dtype::bf16, Dtype::fp32}) {
    check(random, {{0, 0, 0}, 3, 192, 64}, storage);
    check(random, {{0, 0}, 0, 64, 64}, storage);
  }
}

TEST(grouped_linear_gpu, one_expert_takes_all) {
  STOWAGE_NEED_GPU();
  Random random;
  check(random, {{0, 0, 1500, 0}, 1, 264, 136}, Dtype::bf16);
}

TEST(grouped_linear_gpu, many_experts) {
  STOWAGE_NEED_GPU();
  Random random;
  check(random, {random_counts(random, 512, 20), 11, 64, 48}, Dtype::bf16);
  check(random, {random_counts(random, 100, 150), 11, 104, 64}, Dtype::bf16);
  // Many tiles to a block, of both shapes.
  check(random, {random_counts(random, 150, 80), 11, 256, 384}, Dtype::bf16);
  check(random, {random_counts(random, 200, 60), 0, 376, 248}, Dtype::bf16);
}

TEST(grouped_linear_gpu, odd_extents_and_fp32) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Dtype storage : {Dtype::bf16, Dtype::fp32}) {
    check(random, {{5, 0, 130, 64}, 5, 70, 90}, storage);
    check(random, {{1}, 2, 1, 1}, storage);
  }
  check(random, {{33, 0, 65}, 0, 128, 64}, Dtype::fp32);
}

TEST(grouped_linear_gpu, same_bits_in_every_run_and_replay) {
  STOWAGE_NEED_GPU();
  Random random;
  const std::vector<ExpertCase> cases = {{random_counts(random, 40, 150), 4, 256, 320},
                                         {{70, 3, 200, 1500, 0, 130, 1, 64}, 5, 392, 512}};
  for (const ExpertCase& c : cases)  // the second in pieces
    Problem(c, Dtype::bf16, random).values_on_gpu(100);
}

}  // namespace
}  // namespace stowage::kernels::test
