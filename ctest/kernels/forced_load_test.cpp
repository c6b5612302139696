// Experts that are drawn and not chosen: their keys, how often each is drawn, and what of the
// router's own a draw leaves alone.
#include "kernels/moe/forced_load.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <set>

#include "ctest/kernels/operator_arrays.hpp"
#include "kernels/moe/router.hpp"

namespace stowage::kernels::test {
namespace {

constexpr ForcedLoad kLoads[] = {ForcedLoad::balanced, ForcedLoad::zipf};

TEST(forced_load, logarithms_are_near_and_order_as_their_numbers_do) {
  Random random;
  std::vector<std::uint32_t> numbers = {0, 1, 2, 3, 0x7fffffffU, 0x80000000U, 0xffffffffU};
  for (int i = 0; i < 100000; ++i)
    numbers.push_back(static_cast<std::uint32_t>(random.integer(0, 0xffffffff)) >> i % 32);
  std::ranges::sort(numbers);
  std::uint32_t above = 1U << 31;
  for (const std::uint32_t bits : numbers) {
    const std::uint32_t value = kernels::detail::minus_log2(bits);
    const double difference = value * 0x1p-26 + std::log2((bits | 1U) * 0x1p-32);
    EXPECT_GE(difference, -0x1p-25) << bits;
    EXPECT_LE(difference, 0.027) << bits;
    EXPECT_LT(value, 1U << 31) << bits;
    EXPECT_LE(value, above) << bits;
    above = value;
  }
}

TEST(forced_load, places_are_a_permutation_and_the_first_is_anywhere) {
  for (const int experts : {1, 2, 3, 5, 8, 32, 100, 128, 1000, 1024, 65536}) {
    std::vector<int> first(2, 0);  // layers whose busiest expert is in either half
    for (int layer = 0; layer < 64; ++layer) {
      std::vector<std::uint32_t> places;
      for (int e = 0; e < experts; ++e)
        places.push_back(kernels::detail::expert_place(experts, layer, e));
      const auto at = std::ranges::find(places, 1U) - places.begin();
      ++first[2 * at >= experts ? 1 : 0];
      std::ranges::sort(places);
      std::vector<std::uint32_t> wanted(places.size());
      std::iota(wanted.begin(), wanted.end(), 1U);
      ASSERT_EQ(places, wanted) << experts << " experts, layer " << layer;
      if (experts > 1024) break;
    }
    // Of 64 fair draws fewer than 16 are on one side in one case of 20000.
    if (experts > 1 && experts <= 1024 && experts % 2 == 0) {
      EXPECT_GE(std::ranges::min(first), 16) << experts;
    }
  }
}

RouterOptions options_of(ForcedLoad load, int experts, int topk, int layer = 3) {
  return {.experts = experts, .topk = topk, .load = load, .layer = layer};
}

// The choices of `rows` rows of which `routed` tokens are routed, and what they weigh.
void select(const RouterOptions& options, std::int64_t rows, std::int32_t routed,
            const Array& indices, Arrays<RouterSelect> others = {}) {
  const Dtype dtype = others.logits.view() ? others.logits.dtype() : Dtype::fp32;
  if (!others.logits.view()) others.logits = Array(dtype, {rows, options.experts});
  others.cu_seqlens = int32_array({0, routed});
  others.indices = indices;
  run(RouterSelect{.tokens = rows,
                   .options = options,
                   .starts = 2,
                   .storage = dtype,
                   .bias = static_cast<bool>(others.bias.view()),
                   .weights = static_cast<bool>(others.weights.view())},
      others);
}

// Choices of all tokens; logits say nothing, so they may be anything.
std::vector<std::int32_t> draw(const RouterOptions& options, std::int32_t tokens) {
  const Array indices(Dtype::int32, {tokens, options.topk});
  select(options, tokens, tokens, indices);
  const auto all = indices.as<std::int32_t>();
  return {all.begin(), all.end()};
}

std::vector<double> shares(const RouterOptions& options, std::int32_t tokens) {
  std::vector<double> share(static_cast<std::size_t>(options.experts), 0.0);
  for (const std::int32_t e : draw(options, tokens))
    share[static_cast<std::size_t>(e)] += 1.0 / tokens;
  return share;
}

TEST(forced_load, experts_are_those_of_the_smallest_keys) {
  Random random;
  constexpr std::int32_t kTokens = 40, kTail = 7;
  for (const ForcedLoad load : kLoads)
    for (const auto& [experts, topk, groups] :
         {std::array{1, 1, 1}, {6, 6, 1}, {8, 2, 4}, {100, 40, 1}, {1024, 8, 1}}) {
      RouterOptions options = options_of(load, experts, topk);
      options.groups = groups;
      const Array logits(Dtype::fp64, {kTokens, experts}, random.normal(kTokens * experts, 2));
      const Array bias(Dtype::fp64, {experts}, random.normal(experts, 9));
      const Array indices(Dtype::int32, {kTokens, topk});
      Arrays<RouterSelect> others;
      others.logits = logits;
      others.bias = bias;
      select(options, kTokens, kTokens - kTail, indices, others);
      const auto chosen = indices.as<std::int32_t>();
      for (std::int32_t t = 0; t < kTokens; ++t) {
        std::vector<std::int32_t> wanted(static_cast<std::size_t>(experts), -1);
        if (t < kTokens - kTail) {
          std::iota(wanted.begin(), wanted.end(), 0);
          std::ranges::stable_sort(wanted, {}, [&](std::int32_t e) {
            return kernels::detail::forced_key(load, experts, options.layer, t, e);
          });
        }
        for (int r = 0; r < topk; ++r)
          ASSERT_EQ(chosen[static_cast<std::size_t>(t * topk + r)],
                    wanted[static_cast<std::size_t>(r)])
              << experts << " experts, token " << t;
      }
    }
}

TEST(forced_load, weights_are_those_of_the_scores_of_who_is_drawn) {
  Random random;
  constexpr std::int32_t kTokens = 30;
  for (const ForcedLoad load : kLoads) {
    const RouterOptions options = options_of(load, 16, 4);
    const Values scores = random.normal(kTokens * 16, 2);
    const Array logits(Dtype::fp64, {kTokens, 16}, scores);
    const Array indices(Dtype::int32, {kTokens, 4}), weights(Dtype::fp64, {kTokens, 4});
    Arrays<RouterSelect> others;
    others.logits = logits;
    others.weights = weights;
    select(options, kTokens, kTokens, indices, others);
    Values wanted;
    for (std::int32_t t = 0; t < kTokens; ++t) {
      Values chosen;
      for (int r = 0; r < 4; ++r) {
        const auto e = indices.as<std::int32_t>()[static_cast<std::size_t>(4 * t + r)];
        chosen.push_back(1 / (1 + std::exp(-scores[static_cast<std::size_t>(16 * t + e)])));
      }
      const double sum = std::accumulate(chosen.begin(), chosen.end(), 0.0);
      for (const double s : chosen) wanted.push_back(s / sum);
    }
    EXPECT_LT(relative_error(weights.values(), wanted), tolerance(Dtype::fp64, 4));
  }
}

// A count of N draws with probability p is within six deviations sqrt(N p (1 - p)) of N p, but once
// in 10^8 experts.
TEST(forced_load, balanced_experts_have_as_many_tokens) {
  constexpr std::int32_t kTokens = 60000;
  for (const auto& [experts, topk] : {std::array{2, 1}, {6, 2}, {8, 3}, {32, 4}, {128, 6}})
    for (const int layer : {0, 1, 30}) {
      const double p = static_cast<double>(topk) / experts;
      for (const double share :
           shares(options_of(ForcedLoad::balanced, experts, topk, layer), kTokens))
        EXPECT_NEAR(share, p, 6 * std::sqrt(p * (1 - p) / kTokens)) << experts << " experts";
    }
}

// Of weights 1 / p, that a draw or the second of two is the one in place p: w_p / W, and the sum
// over the first of w_j / W * w_p / (W - w_j). 2 % is for the logarithm.
TEST(forced_load, zipf_falls_with_the_place_as_draws_without_replacement_do) {
  constexpr std::int32_t kTokens = 100000;
  for (const int experts : {4, 8, 32})
    for (const int topk : {1, 2})
      for (const int layer : {0, 5}) {
        const std::vector<double> share =
            shares(options_of(ForcedLoad::zipf, experts, topk, layer), kTokens);
        double total = 0;
        for (int p = 1; p <= experts; ++p) total += 1.0 / p;
        std::vector<double> by_place(static_cast<std::size_t>(experts));
        for (int e = 0; e < experts; ++e) {
          const auto place = kernels::detail::expert_place(experts, layer, e);
          by_place[place - 1] = share[static_cast<std::size_t>(e)];
        }
        for (int p = 1; p <= experts; ++p) {
          double wanted = 1 / (p * total);
          for (int j = 1; topk == 2 && j <= experts; ++j)
            if (j != p) wanted += 1 / (j * total) / (p * (total - 1.0 / j));
          const double drawn = by_place[static_cast<std::size_t>(p - 1)];
          const double noise = 6 * std::sqrt(wanted * (1 - wanted) / kTokens);
          EXPECT_NEAR(drawn, wanted, 0.02 * wanted + noise) << experts << " experts, place " << p;
          if (p > 1 && p <= 8) {
            EXPECT_LT(drawn, by_place[static_cast<std::size_t>(p - 2)]) << "place " << p;
          }
        }
      }
}

TEST(forced_load, each_layer_draws_others_and_each_token_distinct_ones) {
  for (const ForcedLoad load : kLoads) {
    const auto first = draw(options_of(load, 32, 4, 0), 1000);
    const auto second = draw(options_of(load, 32, 4, 1), 1000);
    int same = 0;
    for (std::size_t t = 0; t < 1000; ++t) {
      const std::set<std::int32_t> one(&first[4 * t], &first[4 * t] + 4);
      EXPECT_EQ(one.size(), 4U);
      same += std::equal(&first[4 * t], &first[4 * t] + 4, &second[4 * t]);
    }
    EXPECT_LT(same, 10);
  }
}

// Ranks draw what one rank draws for the same tokens.
TEST(forced_load, rows_of_ranks_are_those_of_one_rank) {
  constexpr std::int32_t kTokens = 48, kRows = 12, kTail = 5;
  for (const ForcedLoad load : kLoads) {
    RouterOptions options = options_of(load, 10, 3);
    const auto run = [&](std::int32_t rows) {
      const Array indices(Dtype::int32, {rows, 3});
      select(options, rows, kTokens - kTail, indices);
      return indices.values();
    };
    const Values whole = run(kTokens);
    for (int rank = 0; rank < kTokens / kRows; ++rank) {
      options.rows = {.first = std::int64_t{rank} * kRows};
      const Values part = run(kRows);
      for (std::int32_t row = 0; row < kRows; ++row)
        for (int r = 0; r < 3; ++r)
          EXPECT_EQ(part[static_cast<std::size_t>(3 * row + r)],
                    whole[static_cast<std::size_t>(3 * options.rows.token(row) + r)]);
      options.rows = {};
    }
  }
}

}  // namespace
}  // namespace stowage::kernels::test
