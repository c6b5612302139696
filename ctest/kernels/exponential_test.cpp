#include "kernels/exponential.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ctest/kernels/support.hpp"
#include "kernels/softmax.hpp"

namespace stowage::kernels::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Within 2 units in the last place over the whole range: 2 * 2^-23 relative.
TEST(exponential, is_exp_within_two_units) {
  Random random;
  for (const double x : random.uniform(200000, -87.2, 88.2)) {
    const auto argument = static_cast<float>(x);
    const double expected = std::exp(static_cast<double>(argument));
    ASSERT_NEAR(static_cast<double>(exponential(argument)), expected, expected * 0x1p-22)
        << "exp(" << argument << ")";
  }
}

TEST(exponential, keeps_its_limits) {
  EXPECT_EQ(exponential(0.0F), 1.0F);
  EXPECT_EQ(exponential(-100.0F), 0.0F);
  EXPECT_EQ(exponential(-kInfinity), 0.0F);
  EXPECT_EQ(exponential(89.0F), kInfinity);
  EXPECT_EQ(exponential(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(exponential(std::nanf(""))));
}

TEST(exponential, largest_of_any_count) {
  Random random;
  for (std::int64_t count = 0; count < 70; ++count) {
    const Values values = random.normal(count);
    double expected = -std::numeric_limits<double>::infinity();
    for (const double value : values) expected = std::max(expected, value);
    EXPECT_EQ(largest(values.data(), count), expected);
  }
}

}  // namespace
}  // namespace stowage::kernels::test
