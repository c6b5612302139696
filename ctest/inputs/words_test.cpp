#include "inputs/deck/words.hpp"

#include <gtest/gtest.h>

#include "execution/error.hpp"

namespace stowage::inputs {
namespace {

using Words = std::vector<std::string>;

TEST(words, of_a_list_have_no_blanks_around_them) {
  EXPECT_EQ(words("a"), Words{"a"});
  EXPECT_EQ(words(" a,b b ,  c"), (Words{"a", "b b", "c"}));
  EXPECT_EQ(words(",a,, ,b,"), (Words{"a", "b"}));
  EXPECT_EQ(words(""), Words{});
  EXPECT_EQ(words("  "), Words{});
}

TEST(words, numbers_are_finite_and_whole_words) {
  EXPECT_EQ(number("-1.5e3"), -1500);
  for (const char* word : {"", "1 2", "1x", " 1", "inf", "nan", "1e999"})
    EXPECT_FALSE(number(word)) << word;
}

TEST(words, others_twice_and_none_are_refused_by_the_option) {
  const auto refused = [](const Words& given) {
    try {
      require_words("--modes", given, {"off", "step"});
    } catch (const execution::Error& error) {
      EXPECT_EQ(error.exit(), execution::Exit::usage);
      EXPECT_NE(std::string(error.what()).find("--modes"), std::string::npos) << error.what();
      return true;
    }
    return false;
  };
  EXPECT_FALSE(refused({"off"}));
  EXPECT_FALSE(refused({"step", "off"}));
  EXPECT_TRUE(refused({"off", "on"}));
  EXPECT_TRUE(refused({"off", "off"}));
  EXPECT_TRUE(refused({}));
}

}  // namespace
}  // namespace stowage::inputs
