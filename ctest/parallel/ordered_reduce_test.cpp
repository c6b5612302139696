// All-reduce in rank order: exact order, any size, repeatable to the bit.
#include "parallel/ordered_reduce.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "ctest/parallel/mpi_support.hpp"

namespace stowage::parallel {
namespace {

using execution::Dtype;

template <class T>
constexpr Dtype dtype_of() {
  if constexpr (std::is_same_v<T, float>) return Dtype::fp32;
  if constexpr (std::is_same_v<T, double>) return Dtype::fp64;
  if constexpr (std::is_same_v<T, std::int32_t>) return Dtype::int32;
  return Dtype::int64;
}

class ordered_reduce : public MpiTest {
 protected:
  ordered_reduce() {
    if (world.rank() == 0) seed = std::random_device{}();
    STOWAGE_MPI(MPI_Bcast(&seed, 1, MPI_UNSIGNED, 0, world.handle()));
    RecordProperty("seed", std::to_string(seed));
  }

  /// A rank's input: values of mixed size and sign, so that the order of a sum shows in its bits.
  template <class T>
  std::vector<T> input(int rank, std::int64_t count) const {
    std::mt19937_64 random(seed + static_cast<unsigned>(rank) * 7919U);
    std::vector<T> values(static_cast<std::size_t>(count));
    if constexpr (std::is_integral_v<T>) {
      std::uniform_int_distribution<int> any(-1000, 1000);
      for (T& v : values) v = static_cast<T>(any(random));
    } else {
      std::normal_distribution<double> normal;
      for (T& v : values) v = static_cast<T>(normal(random) * std::exp(3 * normal(random)));
    }
    return values;
  }

  /// The definition: rank by rank.
  template <class T, class Combine>
  std::vector<T> expected(std::int64_t count, Combine&& combine) const {
    std::vector<T> result = input<T>(0, count);
    for (int r = 1; r < world.size(); ++r) {
      const std::vector<T> next = input<T>(r, count);
      for (std::size_t i = 0; i < result.size(); ++i) result[i] = combine(result[i], next[i]);
    }
    return result;
  }

  template <class T>
  std::vector<T> reduced(OrderedReduce& reduce, std::int64_t count,
                         Reduction how = Reduction::sum) const {
    std::vector<T> values = input<T>(world.rank(), count);
    reduce.all_reduce(values.data(), count, dtype_of<T>(), how);
    return values;
  }

  template <class T>
  void check_all_sizes() {
    OrderedReduce reduce(world, 64 << 10);
    for (const std::int64_t count : {0, 1, 7, 1024, 1025, 8192, 16384, 50'001}) {
      const auto sum = [](T a, T b) { return static_cast<T>(a + b); };
      const auto smaller = [](T a, T b) { return std::min(a, b); };
      const auto larger = [](T a, T b) { return std::max(a, b); };
      EXPECT_EQ(reduced<T>(reduce, count), expected<T>(count, sum)) << seed << " " << count;
      EXPECT_EQ(reduced<T>(reduce, count, Reduction::min), expected<T>(count, smaller)) << count;
      EXPECT_EQ(reduced<T>(reduce, count, Reduction::max), expected<T>(count, larger)) << count;
    }
  }

  unsigned seed = 0;
};

TEST_F(ordered_reduce, fp32_equals_the_definition_to_the_bit) { check_all_sizes<float>(); }
TEST_F(ordered_reduce, fp64_equals_the_definition_to_the_bit) { check_all_sizes<double>(); }
TEST_F(ordered_reduce, int32_equals_the_definition) { check_all_sizes<std::int32_t>(); }
TEST_F(ordered_reduce, int64_equals_the_definition) { check_all_sizes<std::int64_t>(); }

TEST_F(ordered_reduce, does_not_depend_on_the_workspace) {
  OrderedReduce small(world, 1), large(world, 1 << 20);
  EXPECT_EQ(reduced<float>(small, 20'000), reduced<float>(large, 20'000)) << seed;
}

TEST_F(ordered_reduce, leaves_what_lies_beyond_alone) {
  OrderedReduce reduce(world, 64 << 10);
  std::vector<float> values = input<float>(world.rank(), 30'010);
  const std::vector<float> before = values;
  reduce.all_reduce(values.data() + 5, 30'000, Dtype::fp32, Reduction::sum);
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + 5, values.begin()));
  EXPECT_TRUE(std::equal(before.end() - 5, before.end(), values.end() - 5));
}

TEST_F(ordered_reduce, nan_on_any_rank_gives_nan_on_all) {
  OrderedReduce reduce(world);
  for (int where = 0; where < world.size(); ++where) {
    for (const Reduction how : {Reduction::sum, Reduction::min, Reduction::max}) {
      float value = world.rank() == where ? std::numeric_limits<float>::quiet_NaN() : 1.0F;
      reduce.all_reduce(&value, 1, Dtype::fp32, how);
      EXPECT_TRUE(std::isnan(value)) << name(how) << " with NaN on rank " << where;
    }
  }
}

TEST_F(ordered_reduce, other_types_are_refused) {
  if (world.size() == 1) GTEST_SKIP() << "one rank combines nothing";
  OrderedReduce reduce(world);
  std::uint16_t value = 0;
  EXPECT_THROW(reduce.all_reduce(&value, 1, Dtype::bf16, Reduction::sum), execution::Error);
}

}  // namespace
}  // namespace stowage::parallel
