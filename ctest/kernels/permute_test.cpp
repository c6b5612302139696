#include <gtest/gtest.h>

#include <cmath>

#include "ctest/kernels/operator_arrays.hpp"
#include "kernels/moe/balance.hpp"
#include "kernels/moe/capacity.hpp"
#include "kernels/moe/permute.hpp"

namespace stowage::kernels::test {
namespace {

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

struct Sizes {
  std::int64_t n, topk, experts, tail, width;

  PermuteIndex index(Dtype storage, std::int64_t capacity) const {
    return {.tokens = n, .topk = topk, .experts = experts, .rows = capacity, .storage = storage};
  }
  /// GatherRows or CombineRows.
  template <class Op>
  Op op(Dtype storage, std::int64_t capacity) const {
    Op op{};
    op.tokens = n;
    op.topk = topk;
    op.rows = capacity;
    op.width = width;
    op.storage = storage;
    return op;
  }
};

constexpr Sizes kSizes[] = {
    {1, 1, 1, 0, 1}, {1, 2, 9, 0, 5}, {40, 3, 4, 7, 17}, {100, 2, 64, 0, 33}, {6, 2, 4, 6, 8}};

// Random choices and what PermuteIndex makes of them.
struct Routing : Arrays<PermuteIndex> {
  Routing(Random& random, Sizes s, Dtype storage)
      : Arrays<PermuteIndex>(make_arrays(s.index(storage, s.n * s.topk), random)), sizes(s) {
    Values chosen;
    for (std::int64_t t = 0; t < s.n; ++t) {
      const std::int64_t first = random.integer(0, s.experts - 1);
      for (std::int64_t r = 0; r < s.topk; ++r)  // distinct experts; the last quarter stays empty
        chosen.push_back(t < s.n - s.tail ? static_cast<double>((first + r) %
                                                                std::max(s.topk, s.experts * 3 / 4))
                                          : -1.0);
    }
    set(indices, chosen);
    run(s.index(storage, s.n * s.topk), *this);
  }

  std::int64_t rows() const { return std::lround(offsets.values().back()); }

  Sizes sizes;
};

TEST(permute, rows_are_sorted_by_expert_token_and_slot) {
  Random random;
  for (const Sizes& s : kSizes) {
    const Routing r(random, s, Dtype::fp32);
    const Values chosen = r.indices.values(), weights = r.weights.values();
    const Values offsets = r.offsets.values(), token_row = r.token_row.values();
    const Values row_weight = r.row_weight.values();
    double row = 0;
    for (std::int64_t e = 0; e < s.experts; ++e) {
      EXPECT_EQ(offsets[index(e)], row);
      for (std::int64_t pair = 0; pair < s.n * s.topk; ++pair) {
        if (chosen[index(pair)] != static_cast<double>(e)) continue;
        EXPECT_EQ(token_row[index(pair)], row);
        EXPECT_EQ(row_weight[static_cast<std::size_t>(row)], weights[index(pair)]);
        ++row;
      }
    }
    EXPECT_EQ(offsets.back(), row);
    EXPECT_EQ(row, static_cast<double>((s.n - s.tail) * s.topk));
    for (auto rest = static_cast<std::size_t>(row); rest < row_weight.size(); ++rest)
      EXPECT_EQ(row_weight[rest], 0);
    for (std::size_t pair = 0; pair < chosen.size(); ++pair)
      EXPECT_EQ(token_row[pair] < 0, chosen[pair] < 0);
  }
}

TEST(permute, gather_copies_rows_and_leaves_the_rest) {
  Random random;
  for (const Sizes& s : kSizes)
    for (const Dtype storage : kFloatingTypes) {
      const Routing r(random, s, storage);
      const Values x = rounded(random.normal(s.n * s.width), storage);
      const Array xs(storage, {s.n * s.topk, s.width});
      run(s.op<GatherRows>(storage, s.n * s.topk),
          {.x = Array(storage, {s.n, s.width}, x), .token_row = r.token_row, .xs = xs});
      const Values places = r.token_row.values(), rows = xs.values();
      std::vector<std::size_t> token(rows.size());  // of each row
      for (std::size_t pair = 0; pair < places.size(); ++pair)
        if (places[pair] >= 0) token[index(std::lround(places[pair]))] = pair / index(s.topk);
      for (std::int64_t row = 0; row < s.n * s.topk; ++row)
        for (std::int64_t j = 0; j < s.width; ++j) {
          const double value = rows[index(row * s.width + j)];
          if (row < r.rows())
            ASSERT_EQ(value, x[token[index(row)] * index(s.width) + index(j)]);
          else
            ASSERT_TRUE(std::isnan(value)) << "row " << row << " was written";
        }
    }
}

// out[t] = old[t] + sum of the rows of t, in fp64.
Values plain_combine(const Routing& r, const Values& ys, Values old) {
  const Values rows = r.token_row.values();
  const std::int64_t width = r.sizes.width;
  for (std::size_t pair = 0; pair < rows.size(); ++pair)
    for (std::int64_t j = 0; rows[pair] >= 0 && j < width; ++j)
      old[pair / index(r.sizes.topk) * index(width) + index(j)] +=
          ys[index(std::lround(rows[pair]) * width + j)];
  return old;
}

TEST(permute, combine_adds_the_rows_of_a_token) {
  Random random;
  for (const Sizes& s : kSizes)
    for (const Dtype storage : kFloatingTypes) {
      const Routing r(random, s, storage);
      Values ys = rounded(random.normal(s.n * s.topk * s.width), storage);
      std::fill(ys.begin() + r.rows() * s.width, ys.end(), NAN);  // no row: never read
      const Values old = rounded(random.normal(s.n * s.width), storage);
      const Array rows(storage, {s.n * s.topk, s.width}, ys), stored(storage, {s.n, s.width});
      const Array added(storage, {s.n, s.width}, old);
      CombineRows op = s.op<CombineRows>(storage, s.n * s.topk);
      run(op, {.ys = rows, .token_row = r.token_row, .out = stored});
      op.accumulate = true;
      run(op, {.ys = rows, .token_row = r.token_row, .out = added});
      const double allowed = tolerance(storage, static_cast<double>(s.topk));
      const Values zero(old.size(), 0.0);
      EXPECT_LE(relative_error(stored.values(), plain_combine(r, ys, zero)), allowed);
      EXPECT_LE(relative_error(added.values(), plain_combine(r, ys, old)), allowed);
    }
}

// The first elements of a tensor of rank 1 or 2: those behind must stay what they are.
struct Front {
  Front(const Array& array, std::vector<std::int64_t> shape)
      : info(execution::one_buffer("front", array.dtype(), std::move(shape),
                                   execution::Lifetime::scratch)),
        address(array.as<std::byte>().data()) {}
  View view() const { return {{&address, 1}, &info}; }

  execution::TensorInfo info;
  void* address;
};

TEST(permute, pairs_beyond_the_capacity_have_no_row_and_nothing_is_written_behind_it) {
  Random random;
  for (const Sizes& s : kSizes) {
    const Routing all(random, s, Dtype::fp64);
    for (const std::int64_t capacity :
         {s.n * s.topk, all.rows(), all.rows() / 2, std::int64_t{0}}) {
      const std::int64_t pairs = s.n * s.topk;
      const Array wanted(Dtype::int32, {s.experts + 1}), offsets(Dtype::int32, {s.experts + 1});
      const Array token_row(Dtype::int32, {s.n, s.topk}), row_weight(Dtype::fp64, {pairs});
      const Array xs(Dtype::fp64, {pairs, s.width}), most = int32_array({1, 1, 5});
      const Values x = random.normal(s.n * s.width);
      const Front weight(row_weight, {capacity}), rows(xs, {capacity, s.width});
      const Array from(Dtype::fp64, {s.n, s.width}, x);
      on_queue([&](Queue& q) {
        s.index(Dtype::fp64, capacity)
            .run(q, {.indices = all.indices,
                     .offsets = wanted,
                     .token_row = token_row,
                     .row_weight = weight.view(),
                     .weights = all.weights});
        LimitOffsets{.experts = s.experts, .capacity = capacity}.run(
            q, {.wanted = wanted, .offsets = offsets, .demand = most});
        s.op<GatherRows>(Dtype::fp64, capacity)
            .run(q, {.x = from, .token_row = token_row, .xs = rows.view()});
      });
      EXPECT_EQ(wanted.values(), all.offsets.values());
      double busiest = 1;
      for (std::size_t e = 0; e < offsets.size(); ++e) {
        const double offset = all.offsets.values()[e];
        EXPECT_EQ(offsets.values()[e], std::min(offset, static_cast<double>(capacity)));
        if (e > 0) busiest = std::max(busiest, offset - all.offsets.values()[e - 1]);
      }
      const double routed = std::max(1.0, static_cast<double>(all.rows()));
      EXPECT_EQ(most.values(), (Values{routed, busiest, 5}));
      const Values places = all.token_row.values(), weights = row_weight.values();
      for (std::size_t pair = 0; pair < places.size(); ++pair)
        EXPECT_EQ(token_row.values()[pair],
                  places[pair] < static_cast<double>(capacity) ? places[pair] : -1);
      for (std::int64_t row = 0; row < pairs; ++row) {
        const double weight_of_row = weights[index(row)];
        if (row < capacity)
          EXPECT_EQ(weight_of_row, all.row_weight.values()[index(row)]);
        else
          EXPECT_TRUE(std::isnan(weight_of_row)) << "row " << row << " of capacity " << capacity;
        const bool written = !std::isnan(xs.values()[index(row * s.width)]);
        EXPECT_EQ(written, row < std::min(capacity, all.rows()))
            << "row " << row << " of " << capacity;
      }
    }
  }
}

TEST(permute, gather_and_combine_are_adjoint) {
  Random random;
  const Sizes s{40, 3, 8, 5, 12};
  const Routing r(random, s, Dtype::fp64);
  const Values x = random.normal(s.n * s.width);
  Values ys = random.normal(s.n * s.topk * s.width);
  std::fill(ys.begin() + r.rows() * s.width, ys.end(), 0.0);
  const Array gathered(Dtype::fp64, {s.n * s.topk, s.width}, Values(ys.size(), 0.0));
  const Array combined(Dtype::fp64, {s.n, s.width});
  const std::int64_t pairs = s.n * s.topk;
  run(s.op<GatherRows>(Dtype::fp64, pairs),
      {.x = Array(Dtype::fp64, {s.n, s.width}, x), .token_row = r.token_row, .xs = gathered});
  run(s.op<CombineRows>(Dtype::fp64, pairs),
      {.ys = Array(Dtype::fp64, {pairs, s.width}, ys), .token_row = r.token_row, .out = combined});
  const double one = dot(gathered.values(), ys), other = dot(x, combined.values());
  EXPECT_NEAR(one, other, 1e-12 * static_cast<double>(ys.size()));
}

// Three ranks: each tells what its experts and its slots wanted, the sums say who had too little.
TEST(capacity, ranks_learn_what_each_wanted) {
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp64})
    for (const std::int32_t wanted : {7, 8})
      for (const std::int32_t slots : {4, 5, 6}) {
        Values sums(10, 0.0);
        for (std::int64_t rank = 0; rank < 3; ++rank) {
          const Array most =
              int32_array({rank == 1 ? wanted : 3, rank == 2 ? 3 : 2, rank == 0 ? slots : 1});
          const Array told(dtype, {10});
          run(
              TellRows{
                  .ranks = 3, .rank = rank, .capacity = {.rows = 7, .slots = 5}, .storage = dtype},
              {.demand = most, .rows = told});
          for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += told.values()[i];
        }
        const double w = wanted, s = slots, lacking = (w > 7 ? 1 : 0) + (s > 5 ? 1 : 0);
        EXPECT_EQ(sums, (Values{lacking, 3, w, 3, 2, 2, 3, s, 1, 1}));
        const Array need(Dtype::int32, {4}), step_ok = int32_array({2});
        run(JudgeRows{.ranks = 3, .storage = dtype},
            {.rows = Array(dtype, {10}, sums), .need = need, .step_ok = step_ok});
        EXPECT_EQ(need.values(), (Values{lacking, w, 3, s}));
        EXPECT_EQ(step_ok.values(), (Values{lacking > 0 ? 0.0 : 2.0}));
      }
}

// 6 tokens with 2 choices of which 3 have a row: 3 tokens are read, 6 written, for width 8 in fp64.
TEST(permute, costs_count_the_rows_that_there_are) {
  constexpr double kIndex = 6 * 2 * 4, kRow = 8 * 8;
  const Sizes s{.n = 6, .topk = 2, .experts = 1, .tail = 0, .width = 8};
  GatherRows gather = s.op<GatherRows>(Dtype::fp64, 12);
  CombineRows combine = s.op<CombineRows>(Dtype::fp64, 12);
  gather.routed = combine.routed = 3;
  EXPECT_EQ(gather.cost().bytes, kIndex + (3 + 3) * kRow);
  EXPECT_EQ(combine.cost().bytes, kIndex + (3 + 6) * kRow);
  EXPECT_EQ(combine.cost().flops, 3 * 8);
  gather.routed = 12;
  EXPECT_EQ(gather.cost().bytes, kIndex + (6 + 12) * kRow);
}

TEST(balance, load_counts_rows) {
  const Array offsets = int32_array({0, 3, 3, 10});
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp64}) {
    const Array load(dtype, {3});
    for (const bool accumulate : {false, true})
      run(ExpertLoad{.experts = 3, .storage = dtype, .accumulate = accumulate},
          {.offsets = offsets, .load = load});
    EXPECT_EQ(load.values(), (Values{6, 0, 14}));
  }
}

TEST(balance, bias_moves_one_step_towards_the_mean) {
  const Array load(Dtype::fp64, {4}, Values{8, 4, 0, 4});
  const Array bias(Dtype::fp64, {4}, Values{1, 1, 1, 1});
  run(ExpertBiasUpdate{.experts = 4, .storage = Dtype::fp64, .rate = 0.25},
      {.load = load, .bias = bias, .step_ok = int32_array({1})});
  EXPECT_EQ(bias.values(), (Values{0.75, 1, 1.25, 1}));
}

TEST(balance, a_bad_step_changes_nothing) {
  const Array load(Dtype::fp32, {2}, Values{NAN, 4}), bias(Dtype::fp32, {2}, Values{1, 2});
  run(ExpertBiasUpdate{.experts = 2, .storage = Dtype::fp32, .rate = 0.25},
      {.load = load, .bias = bias, .step_ok = int32_array({0})});
  EXPECT_EQ(bias.values(), (Values{1, 2}));
}

}  // namespace
}  // namespace stowage::kernels::test
