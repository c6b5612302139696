#include "results/statistics.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "ctest/support/seed.hpp"

namespace stowage::results {
namespace {

TEST(statistics, quantiles_interpolate_between_order_statistics) {
  const std::vector<double> samples = {4, 1, 3, 2};
  EXPECT_DOUBLE_EQ(quantile(samples, 0), 1);
  EXPECT_DOUBLE_EQ(quantile(samples, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(quantile(samples, 0.25), 1.75);
  EXPECT_DOUBLE_EQ(quantile(samples, 1), 4);
  EXPECT_TRUE(std::isnan(quantile({}, 0.5)));
}

TEST(statistics, summary_of_known_samples) {
  std::vector<double> samples(11);
  for (std::size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<double>(i);
  samples[10] = 1000;  // an outlier does not move the median
  const Summary summary = summarize(samples);
  EXPECT_EQ(summary.count, 11);
  EXPECT_DOUBLE_EQ(summary.median, 5);
  // Table A of the sign test: for n = 11 the 2nd to the 10th order statistic, confidence 0.9883.
  EXPECT_DOUBLE_EQ(summary.ci95.low, 1);
  EXPECT_DOUBLE_EQ(summary.ci95.high, 9);
  EXPECT_NEAR(summary.coverage, 1 - 2 * 12 / 2048.0, 1e-12);
}

TEST(statistics, few_samples_have_no_interval) {
  const Summary few = summarize(std::vector<double>{3, 1, 2, 5, 4});
  EXPECT_DOUBLE_EQ(few.median, 3);
  EXPECT_TRUE(std::isnan(few.ci95.low) && std::isnan(few.ci95.high));
  EXPECT_DOUBLE_EQ(few.coverage, 0);
  const Summary enough = summarize(std::vector<double>{3, 1, 2, 5, 4, 6});
  EXPECT_DOUBLE_EQ(enough.ci95.low, 1);
  EXPECT_DOUBLE_EQ(enough.ci95.high, 6);
  EXPECT_NEAR(enough.coverage, 1 - 2.0 / 64, 1e-12);
}

TEST(statistics, a_surer_interval_needs_more_samples) {
  // The range of n samples misses the median with 2 / 2^n: 3.1 % of 6, 1.6 % of 7.
  const std::vector<double> six = {3, 1, 2, 5, 4, 6}, seven = {3, 1, 2, 5, 4, 6, 7};
  EXPECT_DOUBLE_EQ(median_interval(six, 0.95).low, 1);
  EXPECT_TRUE(std::isnan(median_interval(six, 0.975).low));
  EXPECT_DOUBLE_EQ(median_interval(seven, 0.975).low, 1);
  EXPECT_DOUBLE_EQ(median_interval(seven, 0.975).high, 7);
  EXPECT_TRUE(std::isnan(median_interval({}, 0.5).low));
  EXPECT_TRUE(std::isnan(median_interval(std::vector<double>{1, std::nan(""), 3}, 0.5).low));
}

TEST(statistics, quotient_is_between_those_of_the_ends) {
  const std::vector<double> over = {2, 3, 4, 5, 6, 7, 8}, under = {10, 10, 10, 20, 20, 20, 20};
  const Interval quotient = quotient_interval(over, under);
  EXPECT_DOUBLE_EQ(quotient.low, 2.0 / 20);
  EXPECT_DOUBLE_EQ(quotient.high, 8.0 / 10);
  EXPECT_TRUE(std::isnan(quotient_interval(over, std::vector<double>(6, 1.0)).low));
}

// Of many pairs of sets of skewed samples, whose medians are ln 2 and 3 ln 2, the interval holds
// the quotient in 95 % or more; the least of 400 as below.
TEST(statistics, quotient_covers_that_of_the_true_medians) {
  std::mt19937_64 generator(ctest::seed());
  std::exponential_distribution<double> draw(1);
  int covered = 0;
  for (int set = 0; set < 400; ++set) {
    std::vector<double> over(40), under(25);
    for (double& sample : over) sample = 3 * draw(generator);
    for (double& sample : under) sample = draw(generator);
    const Interval interval = quotient_interval(over, under);
    if (interval.low <= 3 && 3 <= interval.high) ++covered;
  }
  EXPECT_GE(covered / 400.0, 0.917);
}

TEST(statistics, nan_is_not_hidden) {
  const std::vector<double> samples = {1, std::nan(""), 3};
  EXPECT_TRUE(std::isnan(summarize(samples).median));
  EXPECT_TRUE(std::isnan(summarize({}).median));
}

// Of many sets of skewed samples, the interval holds the true median in 95 % or more; with 400 sets
// the observed share is below 0.95 - 3 sqrt(0.95 * 0.05 / 400) = 0.917 once in some 700 seeds.
TEST(statistics, interval_covers_the_true_median) {
  std::mt19937_64 generator(ctest::seed());
  std::exponential_distribution<double> draw(1);
  int covered = 0;
  for (int set = 0; set < 400; ++set) {
    std::vector<double> samples(80);
    for (double& sample : samples) sample = draw(generator);
    const Interval interval = summarize(samples).ci95;
    if (interval.low <= std::log(2.0) && std::log(2.0) <= interval.high) ++covered;
  }
  EXPECT_GE(covered / 400.0, 0.917);
}

TEST(statistics, interval_stays_finite_for_many_samples) {
  std::vector<double> samples(200000);
  for (std::size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<double>(i);
  const Interval interval = summarize(samples).ci95;
  // Normal limit: n / 2 -+ 1.96 sqrt(n) / 2, within one rank and the continuity correction.
  EXPECT_NEAR(interval.low, 100000 - 0.98 * std::sqrt(200000.0), 3);
  EXPECT_NEAR(interval.high, 100000 + 0.98 * std::sqrt(200000.0), 3);
}

}  // namespace
}  // namespace stowage::results
