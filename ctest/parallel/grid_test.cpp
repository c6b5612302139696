// The process grid as arithmetic, for grids larger than any test can start.
#include "parallel/groups/grid.hpp"

#include <gtest/gtest.h>

#include <set>

#include "execution/error.hpp"

namespace stowage::parallel {
namespace {

const GridShape kLarge = fit_grid(480, 2, 3, 4, 5);  // data 4

TEST(grid, data_takes_what_is_left) {
  EXPECT_EQ(kLarge[Axis::data], 4);
  EXPECT_EQ(kLarge.ranks(), 480);
  EXPECT_EQ(fit_grid(6)[Axis::data], 6);
}

TEST(grid, tensor_is_the_fastest_axis_and_data_the_slowest) {
  EXPECT_EQ(coordinates(kLarge, 1), (PerAxis{{1, 0, 0, 0, 0}}));
  EXPECT_EQ(coordinates(kLarge, 2), (PerAxis{{0, 1, 0, 0, 0}}));
  EXPECT_EQ(coordinates(kLarge, 6), (PerAxis{{0, 0, 1, 0, 0}}));
  EXPECT_EQ(coordinates(kLarge, 24), (PerAxis{{0, 0, 0, 1, 0}}));
  EXPECT_EQ(coordinates(kLarge, 120), (PerAxis{{0, 0, 0, 0, 1}}));
}

TEST(grid, rank_and_coordinates_are_inverse) {
  for (int rank = 0; rank < kLarge.ranks(); ++rank)
    EXPECT_EQ(rank_at(kLarge, coordinates(kLarge, rank)), rank);
}

TEST(grid, members_differ_in_the_axes_of_the_group_only) {
  EXPECT_EQ(members(kLarge, 7, {Axis::tensor}), (std::vector{6, 7}));
  EXPECT_EQ(members(kLarge, 7, {Axis::data}), (std::vector{7, 127, 247, 367}));
  EXPECT_EQ(members(kLarge, 7, {Axis::tensor, Axis::context}), (std::vector{6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(members(kLarge, 7, {}), std::vector{7});
}

TEST(grid, every_group_partitions_the_ranks) {
  for (std::size_t g = 0; g < kGroups; ++g) {
    const AxisSet set = axes(static_cast<Group>(g));
    std::multiset<int> seen;
    for (int rank = 0; rank < kLarge.ranks(); ++rank) {
      const std::vector<int> group = members(kLarge, rank, set);
      if (group.front() == rank) seen.insert(group.begin(), group.end());
    }
    EXPECT_EQ(seen.size(), 480U) << name(static_cast<Group>(g));
    EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), 480U) << name(static_cast<Group>(g));
  }
}

TEST(grid, gradient_groups_hold_equal_parameters) {
  // Dense parameters are cut along tensor and pipeline, experts along expert too.
  EXPECT_EQ(members(kLarge, 0, axes(gradient_group("dense"))).size(), 3U * 4U * 4U);
  EXPECT_EQ(members(kLarge, 0, axes(gradient_group("expert"))).size(), 3U * 4U);
  EXPECT_THROW((void)gradient_group("other"), execution::Error);
}

TEST(grid, ranks_that_do_not_divide_are_a_usage_error) {
  try {
    (void)fit_grid(6, 4);
    FAIL();
  } catch (const execution::Error& error) {
    EXPECT_EQ(error.exit(), execution::Exit::usage);
    EXPECT_STREQ(error.what(), "6 ranks were started, a multiple of 4 is needed for tensor 4");
  }
  EXPECT_THROW((void)fit_grid(6, 1, 1, 0), execution::Error);
}

TEST(grid, products_that_no_int_holds_are_a_usage_error) {
  constexpr int kMany = 1 << 16;  // 2^64 ranks would be 0 of them
  for (const auto& [pipeline, says] :
       {std::pair{1, "expert 65536 is a grid of 2.815e+14 ranks"}, {kMany, "1.845e+19 ranks"}}) {
    try {
      (void)fit_grid(6, kMany, kMany, kMany, pipeline);
      FAIL();
    } catch (const execution::Error& error) {
      EXPECT_EQ(error.exit(), execution::Exit::usage);
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
  }
}

TEST(grid, describes_itself) {
  EXPECT_EQ(kLarge.describe(), "tensor 2 x context 3 x expert 4 x pipeline 5 x data 4");
  EXPECT_EQ(fit_grid(1).describe(), "1 rank");
}

TEST(grid, groups_have_the_names_of_decks) {
  std::vector<std::string_view> names;
  for (std::size_t which = 0; which < kGroups; ++which) {
    names.push_back(name(static_cast<Group>(which)));
    EXPECT_EQ(group_named(names.back()), static_cast<Group>(which)) << names.back();
  }
  EXPECT_EQ(names, (std::vector<std::string_view>{
                       "world", "tensor", "context", "expert", "pipeline", "data", "experts",
                       "dense_gradients", "expert_gradients", "replicated_gradients", "model"}));
}

}  // namespace
}  // namespace stowage::parallel
