// Which of NCCL's choices are pinned while a communicator is made. No GPU is needed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "parallel/transport/nccl.hpp"

namespace stowage::parallel {
namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "none" : value;
}

TEST(nccl_options, a_free_choice_takes_back_what_was_pinned) {
  for (const char* name : {"NCCL_ALGO", "NCCL_PROTO"}) (void)unsetenv(name);
  const NcclOptions pinned{.algorithm = "Tree", .protocol = "LL128"};
  pin_nccl(pinned);
  EXPECT_EQ(variable("NCCL_ALGO") + variable("NCCL_PROTO"), "TreeLL128");
  EXPECT_EQ(pinned.unpinned().channels, 0);
  EXPECT_EQ(pinned.unpinned().patience_s, pinned.patience_s);
  pin_nccl(pinned.unpinned());
  EXPECT_EQ(variable("NCCL_ALGO") + variable("NCCL_PROTO"), "nonenone");
  pin_nccl({});  // of the next communicator
  EXPECT_EQ(variable("NCCL_ALGO") + variable("NCCL_PROTO"), "RingSimple");
}

TEST(nccl_options, what_the_user_has_set_stays) {
  (void)setenv("NCCL_ALGO", "Tree", 1);
  (void)unsetenv("NCCL_PROTO");
  for (int again = 0; again < 2; ++again) {
    pin_nccl({});
    EXPECT_EQ(variable("NCCL_ALGO") + variable("NCCL_PROTO"), "TreeSimple");
    pin_nccl(NcclOptions{}.unpinned());
    EXPECT_EQ(variable("NCCL_ALGO") + variable("NCCL_PROTO"), "Treenone");
  }
}

}  // namespace
}  // namespace stowage::parallel
