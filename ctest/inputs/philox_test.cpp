#include "execution/philox.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "ctest/inputs/support.hpp"
#include "ctest/support/seed.hpp"

namespace stowage::execution {
namespace {

void expect_block(PhiloxBlock counter, std::uint32_t key0, std::uint32_t key1,
                  PhiloxBlock expected) {
  const PhiloxBlock block = philox4x32(counter, key0, key1);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(block.word[i], expected.word[i]) << "word " << i;
}

// The known answers that Random123 ships for philox4x32, 10 rounds.
TEST(philox, known_answers) {
  expect_block({{0, 0, 0, 0}}, 0, 0, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}});
  constexpr std::uint32_t kOnes = 0xffffffff;
  expect_block({{kOnes, kOnes, kOnes, kOnes}}, kOnes, kOnes,
               {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}});
  expect_block({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0,
               {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}});
}

// index is the low half of the counter, stream the high half, seed the key.
TEST(philox, layout_of_counter_and_key) {
  const PhiloxBlock block = philox(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88);
  EXPECT_EQ(block.word[0], 0xd16cfe09U);
  EXPECT_EQ(random_bits(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88),
            0x94fdccebd16cfe09U);
}

TEST(philox, stream_of_a_name) {
  EXPECT_EQ(stream_of(""), 0xcbf29ce484222325U);  // FNV-1a's offset basis and a published value
  EXPECT_EQ(stream_of("a"), 0xaf63dc4c8601ec8cU);
  EXPECT_NE(stream_of("layers.0.w"), stream_of("layers.1.w"));
}

TEST(philox, pairs_equal_single_elements) {
  const std::uint64_t seed = ctest::seed();
  for (std::uint64_t pair = 0; pair < 1000; ++pair) {
    std::int32_t even = 0, odd = 0;
    normal_pair(seed, 7, pair, even, odd);
    EXPECT_EQ(even, normal_sum(seed, 7, 2 * pair)) << "seed " << seed;
    EXPECT_EQ(odd, normal_sum(seed, 7, 2 * pair + 1)) << "seed " << seed;
  }
}

// Mean, deviation, skew and kurtosis of n values, within 6 standard errors. The sum of twelve
// uniforms has excess kurtosis -1.2 / 12.
TEST(philox, moments_of_the_normal_sum) {
  const std::uint64_t seed = ctest::seed();
  constexpr int kCount = 1 << 18;
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0;
  for (int i = 0; i < kCount; ++i) {
    const double x = normal_sum(seed, 1, static_cast<std::uint64_t>(i)) / kNormalSumDeviation;
    m1 += x;
    m2 += x * x;
    m3 += x * x * x;
    m4 += x * x * x * x;
  }
  const double root = std::sqrt(kCount);
  EXPECT_NEAR(m1 / kCount, 0, 6 / root) << "seed " << seed;
  EXPECT_NEAR(m2 / kCount, 1, 6 * std::sqrt(2.0) / root) << "seed " << seed;
  EXPECT_NEAR(m3 / kCount, 0, 6 * std::sqrt(15.0) / root) << "seed " << seed;
  EXPECT_NEAR(m4 / kCount, 2.9, 6 * std::sqrt(96.0) / root) << "seed " << seed;
}

TEST(philox, scaled_values) {
  const std::uint64_t seed = ctest::seed();
  const float scale = normal_scale(0.02);
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const std::int32_t sum = normal_sum(seed, 2, i);
    EXPECT_EQ(normal(seed, 2, i, scale), static_cast<float>(sum) * scale);
    EXPECT_EQ(static_cast<std::int32_t>(static_cast<float>(sum)), sum);  // exact in fp32
    const float value = symmetric_uniform(seed, 3, i, 0.5F);
    EXPECT_TRUE(value >= -0.5F && value < 0.5F);
    const double unit = uniform(seed, 4, i);
    EXPECT_TRUE(unit >= 0 && unit < 1);
    EXPECT_LT(scale_to(philox(seed, 5, i).word[0], 7), 7U);
  }
  EXPECT_EQ(scale_to(0xffffffff, 10), 9U);
  EXPECT_EQ(scale_to(0, 10), 0U);
}

// Which halves of which blocks an element is made of: a change here changes all initial weights.
TEST(philox, halves_of_an_element) {
  const PhiloxBlock a = philox(1, 2, 0), b = philox(1, 2, 1), c = philox(1, 2, 2);
  std::int64_t even = -393210, odd = -393210;
  for (const std::uint32_t w : {a.word[0], a.word[1], a.word[2], a.word[3], b.word[0], b.word[1]}) {
    even += (w & 0xffff) + (w >> 16);
  }
  for (const std::uint32_t w : {b.word[2], b.word[3], c.word[0], c.word[1], c.word[2], c.word[3]}) {
    odd += (w & 0xffff) + (w >> 16);
  }
  EXPECT_EQ(normal_sum(1, 2, 0), even);
  EXPECT_EQ(normal_sum(1, 2, 1), odd);
}

}  // namespace
}  // namespace stowage::execution
