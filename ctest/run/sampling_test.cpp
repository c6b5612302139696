// The token that is drawn from logits, against exact probabilities.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include "execution/philox.hpp"
#include "run/generate/sampling.hpp"

namespace stowage::run {
namespace {

using Values = std::vector<double>;

// 0.4, 0.3, 0.15, 0.1, 0.05 in another order, and shifted: softmax does not see it.
const Values kProbabilities = {0.15, 0.4, 0.05, 0.3, 0.1};

Values logits_of(const Values& probabilities) {
  Values logits;
  for (const double p : probabilities) logits.push_back(std::log(p) + 700);
  return logits;
}

/// Draws of each token, and that each is within five deviations of what a binomial has.
void check_counts(const Sampling& sampling, const Values& expected) {
  constexpr int kDraws = 100000;
  const Values logits = logits_of(kProbabilities);
  std::vector<int> counts(expected.size());
  for (int i = 0; i < kDraws; ++i)
    ++counts[static_cast<std::size_t>(sample(
        logits, sampling, execution::uniform(sampling.seed, 3, static_cast<std::uint64_t>(i))))];
  for (std::size_t t = 0; t < expected.size(); ++t) {
    const double p = expected[t];
    EXPECT_NEAR(counts[t], kDraws * p, 5 * std::sqrt(kDraws * p * (1 - p)) + 1e-9) << "token " << t;
  }
}

TEST(sampling, temperature_0_takes_the_likeliest_and_of_equal_ones_the_first) {
  EXPECT_EQ(sample(logits_of(kProbabilities), {}, 0.999), 1);
  EXPECT_EQ(sample(Values{1, 2, 2, -1}, {}, 0.999), 1);
  EXPECT_EQ(likeliest(Values{-3}), 0);
}

TEST(sampling, temperature_1_draws_by_the_probabilities) {
  check_counts({.temperature = 1, .seed = 11}, kProbabilities);
}

TEST(sampling, a_temperature_is_an_exponent_of_the_probabilities) {
  for (const double temperature : {0.5, 2.0}) {
    Values expected;
    for (const double p : kProbabilities) expected.push_back(std::pow(p, 1 / temperature));
    const double sum = std::accumulate(expected.begin(), expected.end(), 0.0);
    for (double& p : expected) p /= sum;
    check_counts({.temperature = temperature, .seed = 12}, expected);
  }
}

TEST(sampling, top_p_draws_from_the_fewest_tokens_that_have_as_much) {
  const std::map<double, Values> nuclei = {
      {0.1, {0, 1, 0, 0, 0}},
      {0.39, {0, 1, 0, 0, 0}},
      {0.5, {0, 4.0 / 7, 0, 3.0 / 7, 0}},
      {0.84, {0.15 / 0.85, 0.4 / 0.85, 0, 0.3 / 0.85, 0}},
      {0.94, {0.15 / 0.95, 0.4 / 0.95, 0, 0.3 / 0.95, 0.1 / 0.95}},
      {1.0, kProbabilities},
  };
  for (const auto& [top_p, expected] : nuclei)
    check_counts({.temperature = 1, .top_p = top_p, .seed = 13}, expected);
}

TEST(sampling, the_nucleus_is_of_the_tempered_probabilities) {
  // Of the squares 0.16, 0.09, ... over 0.285 the first two have 0.877.
  check_counts({.temperature = 0.5, .top_p = 0.8, .seed = 14}, {0, 0.64, 0, 0.36, 0});
}

TEST(sampling, the_ends_of_all_ranges_are_tokens) {
  const Values logits = {-1e300, 0, 1e300, -5};
  const double last = 1 - 0x1p-53;
  for (const double temperature : {1e-300, 1.0, 1e300})
    for (const double top_p : {1e-300, 0.5, 1.0})
      for (const double uniform : {0.0, 0.5, last}) {
        const std::int32_t token =
            sample(logits, {.temperature = temperature, .top_p = top_p}, uniform);
        EXPECT_GE(token, 0);
        EXPECT_LT(token, 4);
        if (temperature < 1e300 || uniform == 0) {
          EXPECT_EQ(token, 2);
        }
      }
  EXPECT_EQ(sample(Values{7}, {.temperature = 1}, last), 0);
  // All alike: in their order, each as often.
  EXPECT_EQ(sample(Values{4, 4, 4, 4}, {.temperature = 1}, 0.0), 0);
  EXPECT_EQ(sample(Values{4, 4, 4, 4}, {.temperature = 1}, 0.51), 2);
  EXPECT_EQ(sample(Values{4, 4, 4, 4}, {.temperature = 1}, last), 3);
}

TEST(sampling, log_probabilities_are_those_of_softmax) {
  const Values logits = logits_of(kProbabilities);
  for (std::size_t t = 0; t < logits.size(); ++t)
    EXPECT_NEAR(log_probability(logits, static_cast<std::int32_t>(t)), std::log(kProbabilities[t]),
                1e-12);
  EXPECT_EQ(log_probability(Values{12}, 0), 0);
}

}  // namespace
}  // namespace stowage::run
