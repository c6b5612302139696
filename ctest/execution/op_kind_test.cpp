#include "execution/op_kind.hpp"

#include <gtest/gtest.h>

namespace stowage::execution {
namespace {

TEST(op_kind, microbatch_layer_number_and_parameter_are_no_part_of_it) {
  EXPECT_EQ(op_kind("mb0/layers.3.mamba/scan"), "mamba/scan");
  EXPECT_EQ(op_kind("mb12/layers.10.mlp/fc1/1"), "mlp/fc1");
  EXPECT_EQ(op_kind("all_reduce/gradient/dense/7"), "all_reduce/gradient/dense");
  EXPECT_EQ(op_kind("layers.0.attn/core"), "attn/core");
  EXPECT_EQ(op_kind("mb0/layers.3.moe/round_sum/layers.3.experts.fc1.weight"), "moe/round_sum");
  EXPECT_EQ(op_kind("head/round_sum/output.weight"), "head/round_sum");
}

TEST(op_kind, words_that_look_alike_stay) {
  for (const char* name :
       {"", "op", "mb/sum", "mb3", "layers.x/y", "head/loss", "optimizer/adam2", "a/", "layers.3"})
    EXPECT_EQ(op_kind(name), name);
}

}  // namespace
}  // namespace stowage::execution
