#include "run/machine/host_memory.hpp"

#include <gtest/gtest.h>

#include <string>

#include "execution/error.hpp"

namespace stowage::run {
namespace {

/// What the refusal says; empty if there is none.
std::string refusal(std::size_t bytes, std::size_t copy) {
  try {
    require_host_memory(bytes, copy);
  } catch (const execution::Error& error) {
    EXPECT_EQ(error.exit(), execution::Exit::environment);
    return error.what();
  }
  return "";
}

TEST(host_memory, what_the_host_has_is_the_limit) {
  const std::size_t host = host_memory_bytes();
  ASSERT_GT(host, std::size_t{1} << 20);
  EXPECT_EQ(refusal(host, 0), "");
  EXPECT_EQ(refusal(host, host), "");
  EXPECT_NE(refusal(host + 1, 0).find("a rank needs "), std::string::npos);
}

TEST(host_memory, a_copy_without_which_it_would_do_is_named) {
  const std::size_t host = host_memory_bytes();
  const auto names = [&](std::size_t bytes, std::size_t copy) {
    return refusal(bytes, copy).find(std::to_string(copy) + " bytes of them for the copy") !=
           std::string::npos;
  };
  EXPECT_TRUE(names(host + 7, 7));
  EXPECT_TRUE(names(host + 7, 12345));
  EXPECT_FALSE(names(host + 7, 6));
}

}  // namespace
}  // namespace stowage::run
