#include "inputs/data/permutation.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <vector>

#include "ctest/inputs/support.hpp"
#include "ctest/support/seed.hpp"

namespace stowage::inputs {
namespace {

std::vector<std::int64_t> order(std::uint64_t seed, std::int64_t epoch, std::int64_t size) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < size; ++i) all.push_back(permuted(seed, epoch, size, i));
  return all;
}

TEST(permutation, hits_every_element_once) {
  const std::uint64_t seed = ctest::seed();
  for (const std::int64_t size : {1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 1000, 4097}) {
    std::vector<int> hits(static_cast<std::size_t>(size), 0);
    for (const std::int64_t at : order(seed, 3, size)) {
      ASSERT_TRUE(at >= 0 && at < size) << "seed " << seed;
      ++hits[at];
    }
    for (const int hit : hits) ASSERT_EQ(hit, 1) << "seed " << seed << " size " << size;
  }
}

/// The order of any version: whoever goes on with a run reads what it would have read.
TEST(permutation, stays_as_it_is) {
  using Order = std::vector<std::int64_t>;
  EXPECT_EQ(order(1, 2, 5), (Order{0, 1, 2, 4, 3}));
  EXPECT_EQ(order(1, 2, 16), (Order{0, 11, 9, 4, 7, 1, 15, 3, 6, 2, 12, 14, 13, 10, 5, 8}));
}

TEST(permutation, depends_on_seed_and_epoch_only) {
  const std::uint64_t seed = ctest::seed();
  EXPECT_EQ(order(seed, 0, 100), order(seed, 0, 100));
  EXPECT_NE(order(seed, 0, 100), order(seed, 1, 100)) << "seed " << seed;
  EXPECT_NE(order(seed, 0, 100), order(seed + 1, 0, 100)) << "seed " << seed;
}

// Positions move as in a random permutation: the mean |p(i) - i| / n is 1/3 with variance below
// 1/18 an element; 6 standard errors, doubled for their dependence.
TEST(permutation, moves_elements_far) {
  const std::uint64_t seed = ctest::seed();
  constexpr std::int64_t kSize = 10000;
  double sum = 0;
  for (std::int64_t i = 0; i < kSize; ++i) {
    sum += static_cast<double>(std::abs(permuted(seed, 0, kSize, i) - i)) / kSize;
  }
  EXPECT_NEAR(sum / kSize, 1.0 / 3, 12 * std::sqrt(1.0 / 18 / kSize)) << "seed " << seed;
}

TEST(permutation, of_a_huge_set) {
  constexpr std::int64_t kSize = (std::int64_t{1} << 40) + 12345;
  for (std::int64_t i = 0; i < 1000; ++i) {
    const std::int64_t at = permuted(1, 0, kSize, kSize - 1 - i);
    EXPECT_TRUE(at >= 0 && at < kSize);
  }
}

}  // namespace
}  // namespace stowage::inputs
