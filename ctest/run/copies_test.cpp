#include "run/step/copies.hpp"

#include <gtest/gtest.h>

namespace stowage::run {
namespace {

TEST(copies, of_modules_that_move_stand_below_their_headings) {
  std::vector<offload::ModuleSummary> modules(2);
  modules[0].module = "mlp_norm";
  offload::ModuleSummary& moved = modules[1];
  moved.module = "mlp_act";
  moved.offloaded = std::size_t{3} << 29;
  moved.copies = 4;
  moved.d2h_s = 1.5 * (1 << 30) / 50e9;
  moved.h2d_s = 1.5 * (1 << 30) / 40e9;
  moved.waited_s = 1.5e-3;
  EXPECT_EQ(copies_heading("plan"),
            "#   plan                      "
            "module            GiB out  copies  d2h GB/s  h2d GB/s  waits ms\n");
  EXPECT_EQ(copies_text("plan", modules),
            "#   plan                      "
            "mlp_act             1.500       4      50.0      40.0     1.500\n");
  EXPECT_EQ(copies_text("plan", {modules[0]}), "");
  EXPECT_TRUE(any_copies(modules));
  EXPECT_FALSE(any_copies({modules[0]}));
  EXPECT_EQ(exposed_s(modules), 1.5e-3);
  EXPECT_DOUBLE_EQ(copying_s(modules), 1.5 * (1 << 30) / 50e9 + 1.5 * (1 << 30) / 40e9);
}

}  // namespace
}  // namespace stowage::run
