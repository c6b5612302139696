#include "inputs/deck/value.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ctest/inputs/support.hpp"
#include "ctest/support/seed.hpp"
#include "inputs/deck/source.hpp"

namespace stowage::inputs {
namespace {

TEST(value, sizes) {
  EXPECT_EQ(parse_bytes("0"), 0);
  EXPECT_EQ(parse_bytes("100 B"), 100);
  EXPECT_EQ(parse_bytes("1k"), 1024);
  EXPECT_EQ(parse_bytes("64 GiB"), std::int64_t{64} << 30);
  EXPECT_EQ(parse_bytes("1.5M"), 1572864);
  EXPECT_EQ(parse_bytes("2 TB"), std::int64_t{2} << 40);
  EXPECT_EQ(parse_bytes("9000000T"), std::nullopt);  // above 2^63
  EXPECT_EQ(parse_bytes("12 bits"), std::nullopt);
  EXPECT_EQ(parse_bytes("GiB"), std::nullopt);
  EXPECT_EQ(parse_bytes(""), std::nullopt);
}

// Whatever is written is read back to the same bits.
TEST(value, toml_round_trip) {
  std::mt19937_64 random(ctest::seed());
  std::vector<Value> values = {true,
                               std::numeric_limits<std::int64_t>::max(),
                               std::numeric_limits<double>::infinity(),
                               0.0,
                               3e-4,
                               1e22,
                               std::string("a \"quoted\\ path\"\n\ttab \x7f"),
                               std::vector<std::int64_t>{1, -2},
                               std::vector<double>{0.5, 2.0},
                               std::vector<std::string>{"a", "b,c"}};
  for (int i = 0; i < 200; ++i) {
    values.emplace_back(
        std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 200)));
  }
  for (const Value& value : values) {
    const auto source = detail::parse_toml("key = " + to_toml(value), "test");
    ASSERT_EQ(source.assignments.size(), 1U);
    EXPECT_EQ(source.assignments[0].value, value) << to_toml(value);
  }
}

TEST(value, utf8) {
  for (const char* text : {"", "abc", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x9a\xa2"})
    EXPECT_TRUE(is_utf8(text)) << text;
  for (const char* text : {"\x80", "\xc3", "\xc3(", "\xe2\x82", "\xc1\x81", "\xe0\x80\x80"})
    EXPECT_FALSE(is_utf8(text)) << text;
}

TEST(value, coercion_loses_nothing) {
  const auto fits = [](Value value, const Value& like, bool bytes = false) {
    return detail::coerce(value, like, bytes) && value.index() == like.index();
  };
  EXPECT_TRUE(fits(3, 0.5));
  EXPECT_TRUE(fits(std::vector<std::int64_t>{}, std::vector<std::string>{}));
  EXPECT_TRUE(fits(std::vector<std::int64_t>{1}, std::vector<double>{}));
  EXPECT_TRUE(fits(std::string("1 KiB"), 0, true));
  EXPECT_FALSE(fits(std::string("1 KiB"), 0));
  EXPECT_FALSE(fits(std::string("much"), 0, true));
  EXPECT_FALSE(fits(0.5, 3));
  EXPECT_FALSE(fits(1, true));
  EXPECT_FALSE(fits(std::vector<std::int64_t>{1}, std::vector<std::string>{}));
}

}  // namespace
}  // namespace stowage::inputs
