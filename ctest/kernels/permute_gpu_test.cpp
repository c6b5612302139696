// Permutation on a GPU against the host: indices, copies and fp32 sums in order are the same bits.

#include <cmath>

#include "ctest/kernels/device_mirror.hpp"
#include "ctest/kernels/support.hpp"
#include "kernels/moe/balance.hpp"
#include "kernels/moe/capacity.hpp"
#include "kernels/moe/permute.hpp"

namespace stowage::kernels::test {
namespace {

enum class Load { spread, one_expert, few_experts };

struct Sizes {
  std::int64_t n, topk, experts, tail, width;
  Load load = Load::spread;
};

constexpr Sizes kSizes[] = {{1, 1, 1, 0, 1},
                            {1, 2, 9, 0, 5},
                            {40, 3, 4, 7, 17},
                            {6, 2, 4, 6, 8},
                            {100, 2, 1024, 3, 33},
                            {1000, 6, 128, 11, 264},
                            {3001, 4, 32, 0, 520},
                            {700, 4, 32, 5, 2048, Load::one_expert},
                            {5000, 8, 64, 100, 24, Load::few_experts},
                            {130, 8, 16, 3, 4104},  // too many bytes a token for the copy engine
                            {77, 7, 16, 2, 4096},   // as many as it takes
                            {101, 2, 9, 5, 1024},
                            {90000, 4, 130, 1, 8}};

// Choices of each token; with `one_expert` all the same, which the index must bear too.
Array choices(Random& random, const Sizes& s) {
  Values chosen;
  const std::int64_t range = s.load == Load::few_experts ? s.topk : s.experts;
  for (std::int64_t t = 0; t < s.n; ++t) {
    const std::int64_t first = random.integer(0, range - 1);
    for (std::int64_t r = 0; r < s.topk; ++r) {
      const std::int64_t expert = s.load == Load::one_expert ? s.experts - 1 : (first + r) % range;
      chosen.push_back(t < s.n - s.tail ? static_cast<double>(expert) : -1.0);
    }
  }
  return {Dtype::int32, {s.n, s.topk}, chosen};
}

struct Index {
  explicit Index(const Sizes& s) : Index(s, s.n * s.topk) {}
  Index(const Sizes& s, std::int64_t capacity)
      : offsets(Dtype::int32, {s.experts + 1}),
        token_row(Dtype::int32, {s.n, s.topk}),
        row_weight(Dtype::fp32, {capacity}) {}

  std::vector<Array> all() const { return {offsets, token_row, row_weight}; }

  Array offsets, token_row, row_weight;
};

// The host's index of the same choices.
Index host_index(const Sizes& s, const Array& indices, const Array& weights) {
  Index index(s);
  on_queue([&](Queue& q) {
    permute_index(q, indices, index.offsets, index.token_row, index.row_weight, weights);
  });
  return index;
}

void expect_same(const Array& actual, const Array& expected, const char* what) {
  EXPECT_TRUE(std::ranges::equal(bytes_of(actual), bytes_of(expected))) << what;
}

void compare_index(Random& random, const Sizes& s, int replays) {
  SCOPED_TRACE(testing::Message() << s.n << " tokens, " << s.experts << " experts");
  const Array indices = choices(random, s);
  const Array weights(Dtype::fp32, {s.n, s.topk}, random.uniform(s.n * s.topk, 0, 1));
  const Index expected = host_index(s, indices, weights), index(s);
  const std::vector<Array> results = on_gpu(
      [&](Queue& q, auto& at) {
        permute_index(q, at(indices), at(index.offsets), at(index.token_row), at(index.row_weight),
                      at(weights));
      },
      index.all(), replays);
  expect_same(results[0], expected.offsets, "offsets");
  expect_same(results[1], expected.token_row, "token_row");
  expect_same(results[2], expected.row_weight, "row_weight");
}

TEST(permute_gpu, index_is_the_hosts) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Sizes& s : kSizes) compare_index(random, s, s.n == 1000 ? 100 : 2);
}

TEST(permute_gpu, with_less_capacity_the_index_is_the_hosts) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Sizes& s : kSizes) {
    SCOPED_TRACE(testing::Message() << s.n << " tokens, " << s.experts << " experts");
    const std::int64_t capacity = s.n * s.topk / 2;
    if (capacity == 0) continue;
    const Array indices = choices(random, s);
    const Array weights(Dtype::fp32, {s.n, s.topk}, random.uniform(s.n * s.topk, 0, 1));
    const Index index(s, capacity);
    const Array limited(Dtype::int32, {s.experts + 1}), most = int32_array({3, 5, 7});
    const auto work = [&](Queue& q, auto& at) {
      permute_index(q, at(indices), at(index.offsets), at(index.token_row), at(index.row_weight),
                    at(weights));
      limit_offsets(q, at(index.offsets), capacity, at(limited), at(most));
    };
    const std::vector<Array> results =
        on_gpu(work, {index.offsets, index.token_row, index.row_weight, limited, most}, 2);
    on_queue([&](Queue& q) {
      const auto here = [](const Array& array) { return array.view(); };
      work(q, here);
    });
    expect_same(results[0], index.offsets, "offsets");
    expect_same(results[1], index.token_row, "token_row");
    expect_same(results[2], index.row_weight, "row_weight");
    expect_same(results[3], limited, "limited offsets");
    expect_same(results[4], most, "most");
  }
}

TEST(capacity_gpu, what_ranks_tell_and_learn_is_the_hosts) {
  STOWAGE_NEED_GPU();
  for (const std::int32_t wanted : {7, 8}) {
    const Array most = int32_array({wanted, 4, 2}), rows(Dtype::fp32, {10});
    const Array need(Dtype::int32, {4}), step_ok = int32_array({2});
    const auto work = [&](Queue& q, auto& at) {
      tell_rows(q, at(most), {.rows = 7, .slots = 2}, 1, at(rows));
      judge_rows(q, at(rows), at(need), at(step_ok));
    };
    const std::vector<Array> results = on_gpu(work, {rows, need, step_ok});
    on_queue([&](Queue& q) {
      const auto here = [](const Array& array) { return array.view(); };
      work(q, here);
    });
    expect_same(results[0], rows, "rows");
    expect_same(results[1], need, "need");
    expect_same(results[2], step_ok, "step_ok");
  }
}

TEST(permute_gpu, index_of_two_clusters) {  // small enough for a race checker
  STOWAGE_NEED_GPU();
  Random random;
  compare_index(random, {2900, 4, 70, 9, 1}, 1);
}

TEST(permute_gpu, gather_and_combine_are_the_hosts) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Sizes& s : kSizes)
    for (const Dtype storage : {Dtype::fp32, Dtype::bf16}) {
      SCOPED_TRACE(testing::Message() << s.n << " tokens of " << s.width);
      const std::int64_t rows = s.n * s.topk;
      const Array indices = choices(random, s);
      const Index index = host_index(
          s, indices,
          Array(Dtype::fp32, {s.n, s.topk}, Values(static_cast<std::size_t>(rows), 1.0)));
      const Array x(storage, {s.n, s.width}, random.normal(s.n * s.width)),
          xs(storage, {rows, s.width});
      Values values = random.normal(rows * s.width);
      const auto routed = std::lround(index.offsets.values().back());
      std::fill(values.begin() + routed * s.width, values.end(), NAN);  // no row: never read
      const Array ys(storage, {rows, s.width}, values), stored(storage, {s.n, s.width});
      const Array added(storage, {s.n, s.width}, random.normal(s.n * s.width));
      const auto work = [&](Queue& q, auto& at) {
        gather_rows(q, at(x), at(index.token_row), at(xs));
        combine_rows(q, at(ys), at(index.token_row), at(stored), false);
        combine_rows(q, at(ys), at(index.token_row), at(added), true);
      };
      const std::vector<Array> results = on_gpu(work, {xs, stored, added});
      on_queue([&](Queue& q) {
        const auto here = [](const Array& array) { return array.view(); };
        work(q, here);
      });
      expect_same(results[0], xs, "gather");
      expect_same(results[1], stored, "combine");
      expect_same(results[2], added, "combine, accumulated");
    }
}

TEST(permute_gpu, load_and_bias_are_the_hosts) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const std::int64_t experts : {1, 32, 130, 1000})
    for (const int ok : {0, 1}) {
      Values starts{0};
      for (std::int64_t e = 0; e < experts; ++e)
        starts.push_back(starts.back() + static_cast<double>(random.integer(0, 9)));
      const Array offsets(Dtype::int32, {experts + 1}, starts), step_ok = int32_array({ok});
      const Array stored(Dtype::fp32, {experts}),
          bias(Dtype::fp32, {experts}, random.normal(experts));
      const Array added(Dtype::fp32, {experts}, random.uniform(experts, 0, 5));
      const auto work = [&](Queue& q, auto& at) {
        expert_load(q, at(offsets), at(stored), false);
        expert_load(q, at(offsets), at(added), true);
        expert_bias_update(q, at(stored), at(bias), 1e-3, at(step_ok));
      };
      const std::vector<Array> results = on_gpu(work, {stored, added, bias});
      on_queue([&](Queue& q) {
        const auto here = [](const Array& array) { return array.view(); };
        work(q, here);
      });
      expect_same(results[0], stored, "load");
      expect_same(results[1], added, "load, accumulated");
      expect_same(results[2], bias, "bias");
    }
}

}  // namespace
}  // namespace stowage::kernels::test
