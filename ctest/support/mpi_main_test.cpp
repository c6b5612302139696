// The main program of tests on several ranks: one rank that ends a case early ends the test.
#include <gtest/gtest.h>

#include "ctest/support/run_ranks.hpp"

namespace stowage::ctest {
namespace {

JobOutcome run(const std::string& cases) {
  return run_ranks(STOWAGE_TEST_MPIRUN, 3,
                   fmt::format("{} --gtest_filter=early_end.{}", STOWAGE_TEST_PROGRAM, cases));
}

TEST(mpi_main, an_exception_on_one_rank_ends_the_test) {
  const JobOutcome outcome = run("by_an_exception");
  EXPECT_EQ(outcome.code, 1) << outcome.output;
  EXPECT_EQ(outcome.count("[rank 1] ends all ranks: rank 1 has had enough"), 1) << outcome.output;
}

TEST(mpi_main, an_assertion_on_one_rank_ends_the_test) {
  const JobOutcome outcome = run("by_an_assertion");
  EXPECT_EQ(outcome.code, 1) << outcome.output;
  EXPECT_EQ(outcome.count("rank 1 goes no further"), 1) << outcome.output;
}

TEST(mpi_main, an_expectation_on_one_rank_fails_the_test_behind_its_cases) {
  const JobOutcome outcome = run("not*");
  EXPECT_EQ(outcome.code, 1) << outcome.output;
  EXPECT_EQ(outcome.count("rank 1 goes on"), 1) << outcome.output;
  EXPECT_EQ(outcome.count("2 tests from 1 test suite ran."), 1) << outcome.output;
  EXPECT_EQ(run("not_at_all").code, 0);
}

}  // namespace
}  // namespace stowage::ctest
