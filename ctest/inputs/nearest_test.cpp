#include "inputs/deck/nearest.hpp"

#include <gtest/gtest.h>

#include <array>

namespace stowage::inputs {
namespace {

TEST(nearest, edit_distance) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("patern", "pattern"), 1U);
  EXPECT_EQ(edit_distance("hidden_szie", "hidden_size"), 1U);  // neighbours swapped
}

TEST(nearest, picks_the_closest_and_the_first_of_equals) {
  constexpr std::array<std::string_view, 3> kWords = {"fp32", "bf16", "fp64"};
  EXPECT_EQ(nearest("bf61", kWords), "bf16");
  EXPECT_EQ(nearest("fp", kWords), "fp32");
  EXPECT_EQ(nearest("fp", {}), "");
}

}  // namespace
}  // namespace stowage::inputs
