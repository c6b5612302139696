#include "run/record/router_load.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace stowage::run {
namespace {

TEST(router_load, tells_even_from_uneven_layers) {
  const std::vector<double> tokens = {5,  5,  5, 5,   // even
                                      20, 0,  0, 0,   // one expert has all
                                      10, 10, 0, 0,   // half of them share
                                      0,  0,  0, 0};  // no token was routed
  const RouterLoad load(tokens, 4);
  EXPECT_EQ(load.busiest, (std::vector<double>{1, 4, 2, 0}));
  EXPECT_EQ(load.dead, (std::vector<double>{0, 3, 2, 4}));
  ASSERT_EQ(load.entropy.size(), 4);
  EXPECT_DOUBLE_EQ(load.entropy[0], 1);
  EXPECT_DOUBLE_EQ(load.entropy[1], 0);
  EXPECT_DOUBLE_EQ(load.entropy[2], 0.5);
  EXPECT_DOUBLE_EQ(load.entropy[3], 0);
  EXPECT_EQ(load.values().size(), 12);
}

TEST(router_load, of_one_expert_is_even) {
  const RouterLoad load(std::vector<double>{7, 9}, 2);
  EXPECT_EQ(load.busiest, (std::vector<double>{1, 1}));
  EXPECT_EQ(load.entropy, (std::vector<double>{1, 1}));
}

}  // namespace
}  // namespace stowage::run
