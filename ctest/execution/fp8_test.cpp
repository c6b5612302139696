// The two 8-bit formats, by their definition: every code, and every rounding between two codes.
#include "execution/fp8.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "execution/error.hpp"

namespace stowage::execution {
namespace {

/// Finite values of a format that are not negative, in order: of its definition, not of its code.
std::vector<double> values(int exponent_bits, int mantissa_bits, double largest) {
  const int bias = (1 << (exponent_bits - 1)) - 1, binade = 1 << mantissa_bits;
  std::vector<double> all;
  for (int m = 0; m < binade; ++m) all.push_back(std::ldexp(m, 1 - bias - mantissa_bits));
  for (int e = 1; e < (1 << exponent_bits); ++e)
    for (int m = 0; m < binade; ++m) {
      const double value = std::ldexp(binade + m, e - bias - mantissa_bits);
      if (value <= largest) all.push_back(value);
    }
  return all;
}

template <class Format>
void check(const std::vector<double>& values) {
  for (std::size_t code = 0; code < values.size(); ++code)
    for (const bool negative : {false, true}) {
      Format one;
      one.bits = static_cast<std::uint8_t>(code | (negative ? 0x80 : 0));
      const double value = negative ? -values[code] : values[code];
      EXPECT_EQ(static_cast<double>(one), value) << code;
      EXPECT_EQ(static_cast<float>(one), static_cast<float>(value)) << code;
      EXPECT_EQ(Format(value).bits, one.bits) << value;
      if (code + 1 == values.size()) continue;
      // Halfway to the next code: the even one; and to either side of that.
      const double next = negative ? -values[code + 1] : values[code + 1];
      const double half = (value + next) / 2, away = negative ? -INFINITY : INFINITY;
      const auto above = static_cast<std::uint8_t>(one.bits + 1);
      EXPECT_EQ(Format(half).bits, code % 2 == 0 ? one.bits : above) << half;
      EXPECT_EQ(Format(std::nextafter(half, 0.0)).bits, one.bits) << half;
      EXPECT_EQ(Format(std::nextafter(half, away)).bits, above) << half;
    }
  EXPECT_EQ(Format::largest(), values.back());
  for (const double beyond : {std::nextafter(values.back(), INFINITY), 1e30, double{INFINITY}}) {
    EXPECT_EQ(static_cast<double>(Format(beyond)), values.back());
    EXPECT_EQ(static_cast<double>(Format(-beyond)), -values.back());
  }
  EXPECT_TRUE(std::isnan(static_cast<double>(Format(std::nan("")))));
  EXPECT_TRUE(std::signbit(static_cast<double>(Format(-0.0))));
}

TEST(fp8, e4m3_is_as_defined) {
  const std::vector<double> all = values(4, 3, 448);
  ASSERT_EQ(all.size(), 127U);  // the code behind them is NaN
  check<E4m3>(all);
}

TEST(fp8, e5m2_is_as_defined) {
  const std::vector<double> all = values(5, 2, 57344);
  ASSERT_EQ(all.size(), 124U);  // then infinity, and three NaN
  check<E5m2>(all);
  E5m2 infinite;
  infinite.bits = 0xfc;
  EXPECT_EQ(static_cast<double>(infinite), -INFINITY);
}

TEST(fp8, other_types_have_no_form) {
  EXPECT_THROW(with_fp8_type(Dtype::bf16, []<class T>() {}), Error);
  EXPECT_THROW(with_storage_type(Dtype::e4m3, []<class S>() {}), Error);
}

}  // namespace
}  // namespace stowage::execution
