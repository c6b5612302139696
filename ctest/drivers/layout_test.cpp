// Layouts of a scaling curve, read and refused.
#include "drivers/bench_scaling/layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>

#include "execution/error.hpp"

namespace stowage::drivers {
namespace {

std::vector<std::string> names(std::string_view list, int most) {
  std::vector<std::string> all;
  for (const Layout& layout : parse_layouts(list, most)) all.push_back(layout.name());
  return all;
}

/// The message of a refusal; empty if there was none.
std::string refusal(std::string_view list, int most) {
  try {
    (void)parse_layouts(list, most);
  } catch (const execution::Error& error) {
    EXPECT_EQ(error.exit(), execution::Exit::usage);
    return error.what();
  }
  return {};
}

TEST(layout, few_ranks_come_first_and_equals_as_given) {
  const std::vector<std::string> wanted = {"d1", "p2", "d2_zero", "t2_d2"};
  EXPECT_EQ(names("d=2 t=2, p=2,  d=2 zero,d=1", 4), wanted);
  EXPECT_EQ(names("d=2:t=2,p=2,d=2:zero,d=1", 4), wanted);
  EXPECT_EQ(names("t=2 c=2 e=2 p=2 d=2 zero", 32), std::vector<std::string>{"t2_c2_e2_p2_d2_zero"});
  EXPECT_EQ(names("p=2, v=3 p=2 d=2", 4), (std::vector<std::string>{"p2", "p2_v3_d2"}));
}

TEST(layout, is_told_to_the_deck) {
  const std::vector<std::string> wanted = {"parallel.zero=1",     "parallel.tensor=2",
                                           "parallel.context=1",  "parallel.expert=1",
                                           "parallel.pipeline=1", "parallel.data=4"};
  EXPECT_EQ(parse_layouts("t=2 d=4 zero", 8).front().overrides(), wanted);
  const std::vector<std::string> told = parse_layouts("p=2 v=2", 8).front().overrides();
  const std::vector<std::string> stages = {"parallel.virtual_stages=2",
                                           "parallel.schedule=interleaved"};
  EXPECT_TRUE(std::ranges::equal(std::span(told).last(2), stages));
}

TEST(layout, what_is_none_is_refused_with_what_is_allowed) {
  for (const char* list : {"x=2", "d", "d=", "d=0", "d=-1", "d=2x", "d=2 d=4", "zero zero", "d2",
                           "d=1, 2", "d=9999999999", "v=2", "v=2 d=2", "p=2 v=0"})
    EXPECT_NE(refusal(list, 64).find("allowed: t=N, c=N, e=N, p=N, d=N"), std::string::npos)
        << list << ": " << refusal(list, 64);
  EXPECT_NE(refusal("", 4).find("names no layout"), std::string::npos);
  EXPECT_NE(refusal("d=2, d=2 t=1", 4).find("is given twice"), std::string::npos);
  EXPECT_TRUE(refusal("d=2, d=2 zero", 2).empty());
}

TEST(layout, more_ranks_than_the_job_has_are_refused_without_overflow) {
  EXPECT_NE(refusal("d=1, t=2 d=4", 4).find("'t=2 d=4' needs 8 ranks, the job has 4"),
            std::string::npos);
  EXPECT_NE(refusal("d=65536 t=65536", 4).find("needs 4294967296 ranks"), std::string::npos);
}

}  // namespace
}  // namespace stowage::drivers
