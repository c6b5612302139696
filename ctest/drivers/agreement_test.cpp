#include "drivers/bench_kernels/agreement.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "ctest/support/seed.hpp"

namespace stowage::drivers::bench {
namespace {

TEST(agreement, what_was_not_compared_has_no_error) {
  EXPECT_FALSE(worst_error({}).has_value()) << "not checked is not 0";
  EXPECT_FALSE(worst_error({{"y.ratio", 1.1, 1.2, true}}).has_value());
  EXPECT_EQ(worst_error({{"y", 0, 1}}), 0.0);
  EXPECT_EQ(worst_error({{"y", 1e-3, 1}, {"dx", 2e-3, 1}, {"dx.ratio", 9, 1, true}}), 2e-3);
  EXPECT_TRUE(std::isnan(*worst_error({{"y", 1e-3, 1}, {"dx", std::nan(""), 1}, {"z", 1, 1}})));
}

TEST(agreement, formula_says_what_was_compared) {
  EXPECT_EQ(some_of(64, 16384, "rows"), "64 of 16384 rows");
  EXPECT_EQ(some_of(64, 64, "rows"), "all rows");
  EXPECT_EQ(formula({"y", 0, 1, false, some_of(2, 9, "rows")}),
            "||out - ref|| / ||ref|| over 2 of 9 rows, reference in fp64");
  EXPECT_EQ(formula({"dw.idle", 0, 0, false, "one expert", "elements that differ"}),
            "elements that differ over one expert, reference in fp64");
  EXPECT_EQ(formula({"y.ratio", 1, 1.2, true}), "error of ours / error of this peer");
}

TEST(agreement, relative_error_hides_nothing) {
  EXPECT_DOUBLE_EQ(relative_error({3, 4.5}, {3, 4}), 0.1);
  EXPECT_EQ(relative_error({3, 4}, {3, 4}), 0);
  EXPECT_TRUE(std::isnan(relative_error({3, std::nan("")}, {3, 4})));
  EXPECT_TRUE(std::isnan(relative_error({3}, {3, 4})));
  EXPECT_TRUE(std::isnan(relative_error({}, {})));
}

// A sum of products in fp32 by a tree stays within the bound, and 10 times below it is a miss.
TEST(agreement, tree_bound_is_near_what_a_tree_errs) {
  std::mt19937_64 engine(ctest::seed());
  std::normal_distribution<double> normal;
  for (const std::size_t terms : {1024UL, 16384UL}) {
    std::vector<double> sums, references;
    for (int sample = 0; sample < 200; ++sample) {
      std::vector<float> parts;
      double reference = 0;
      for (std::size_t i = 0; i < terms; ++i) {
        const auto a = static_cast<float>(normal(engine)), b = static_cast<float>(normal(engine));
        parts.push_back(a * b);
        reference += static_cast<double>(a) * static_cast<double>(b);
      }
      for (std::size_t half = terms / 2; half > 0; half /= 2)
        for (std::size_t i = 0; i < half; ++i) parts[i] += parts[i + half];
      sums.push_back(static_cast<double>(parts[0]));
      references.push_back(reference);
    }
    const double error = relative_error(sums, references);
    EXPECT_LE(error, tree_tolerance(static_cast<double>(terms)));
    EXPECT_GE(10 * error, tree_tolerance(static_cast<double>(terms)));
  }
}

}  // namespace
}  // namespace stowage::drivers::bench
