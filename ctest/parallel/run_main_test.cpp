// How a job of several ranks ends: one message, the right exit code, nobody left behind.
#include "parallel/run_main.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include "ctest/results/scratch_folder.hpp"
#include "ctest/support/run_ranks.hpp"

namespace stowage::parallel {
namespace {

using Outcome = ctest::JobOutcome;

/// Runs the failing program on `ranks` ranks.
Outcome run(const std::string& how, int ranks) {
  return ctest::run_ranks(STOWAGE_TEST_MPIRUN, ranks,
                          fmt::format("{} {}", STOWAGE_TEST_PROGRAM, how));
}

TEST(run_main, returns_the_exit_code_of_the_program) {
  EXPECT_EQ(run("", 2).code, 0);
  EXPECT_EQ(run("invalid", 2).code, 1);
  EXPECT_EQ(run("stopped", 2).code, 75);
}

TEST(run_main, usage_error_on_all_ranks_is_one_message_without_abort) {
  for (const int ranks : {1, 3}) {
    const Outcome outcome = run("usage", ranks);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.count("stowage: error: deck key model.heads is 7\n"), 1) << outcome.output;
    EXPECT_EQ(outcome.count("stowage: error"), 1) << outcome.output;
    EXPECT_EQ(outcome.count("MPI_ABORT"), 0) << outcome.output;
  }
}

TEST(run_main, environment_error_on_all_ranks_is_one_message) {
  const Outcome outcome = run("environment", 2);
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.count("stowage: error: no GPU was found\n"), 1) << outcome.output;
}

TEST(run_main, an_mpi_that_is_not_for_all_threads_is_the_machines) {
  const Outcome outcome = run("few_threads", 1);
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.count("MPI gives thread level 2, MPI_THREAD_MULTIPLE (3) is needed"), 1)
      << outcome.output;
}

TEST(run_main, too_little_memory_is_the_machines) {
  for (const char* how : {"memory", "more_than_any"}) {
    const Outcome outcome = run(how, 2);
    EXPECT_EQ(outcome.code, 3);
    EXPECT_EQ(outcome.count("memory for what was asked"), 1) << outcome.output;
  }
}

TEST(run_main, texts_that_differ_name_the_rank) {
  for (const int ranks : {2, 4}) {
    const Outcome outcome = run("decks", ranks);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.count("different decks: rank 0 has a.toml, rank 1 has b.toml"), 1)
        << outcome.output;
  }
  EXPECT_EQ(run("decks", 1).code, 0);
}

TEST(run_main, another_program_on_one_rank_is_refused) {
  const results::test::ScratchFolder folder;
  const std::string other = folder / "another_program";
  ASSERT_EQ(::symlink(STOWAGE_TEST_PROGRAM, other.c_str()), 0);
  const Outcome outcome = ctest::run_ranks(
      STOWAGE_TEST_MPIRUN, 2,
      fmt::format("{} 1 {} else {}", STOWAGE_TEST_BY_RANK, STOWAGE_TEST_PROGRAM, other));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.count("different programs"), 1) << outcome.output;
  EXPECT_EQ(outcome.count("another_program"), 1) << outcome.output;
}

TEST(run_main, usage_error_on_one_rank_ends_all) {
  const Outcome outcome = run("usage_on_one", 3);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.count("stowage: error: rank 1 (host "), 1) << outcome.output;
  EXPECT_EQ(outcome.count("file data.bin is not there"), 1) << outcome.output;
}

TEST(run_main, runtime_error_on_all_ranks_is_one_message) {
  const Outcome outcome = run("runtime", 3);
  EXPECT_EQ(outcome.code, 4);
  EXPECT_EQ(outcome.count("stowage: error: rank 0 (host "), 1) << outcome.output;
  EXPECT_EQ(outcome.count("stowage: error"), 1) << outcome.output;
}

TEST(run_main, failed_mpi_call_names_rank_call_and_place) {
  const Outcome outcome = run("mpi", 3);
  EXPECT_EQ(outcome.code, 4);
  EXPECT_EQ(outcome.count("stowage: error: rank 1 (host "), 1) << outcome.output;
  EXPECT_EQ(outcome.count("MPI_Send(&value, 1, MPI_INT, 99"), 1) << outcome.output;
  EXPECT_EQ(outcome.count("failing_program.cpp:"), 1) << outcome.output;
}

TEST(run_main, error_in_a_queue_ends_ranks_that_wait_in_theirs) {
  const Outcome outcome = run("queue", 3);
  EXPECT_EQ(outcome.code, 4);
  EXPECT_EQ(outcome.count("stowage: error: rank 1 (host "), 1) << outcome.output;
  EXPECT_EQ(outcome.count("op failed"), 1) << outcome.output;
}

TEST(run_main, a_rank_that_hangs_is_named_by_one_that_waits) {
  const Outcome outcome = run("hang", 4);
  EXPECT_EQ(outcome.code, 4);
  EXPECT_EQ(outcome.count("stowage: error: rank 0 (host "), 1) << outcome.output;
  EXPECT_EQ(outcome.count("stowage: error"), 1) << outcome.output;
  EXPECT_EQ(outcome.count("collective reduce/second of group data has not ended"), 1)
      << outcome.output;
  EXPECT_EQ(outcome.count("has not come: rank 1 (host "), 1) << outcome.output;
  EXPECT_EQ(outcome.count("which has ended reduce/first, number 1\n"), 1) << outcome.output;
  EXPECT_EQ(outcome.count("does not answer"), 0) << outcome.output;
}

TEST(run_main, a_rank_that_is_stopped_outside_of_plans_is_named) {
  const Outcome outcome = run("stops_before_work", 4);
  EXPECT_EQ(outcome.code, 4);
  EXPECT_EQ(outcome.count("stowage: error: rank 0 (host "), 1) << outcome.output;
  EXPECT_EQ(outcome.count("stowage: error"), 1) << outcome.output;
  EXPECT_EQ(outcome.count("waits in MPI_Barrier for "), 1) << outcome.output;
  EXPECT_EQ(outcome.count("does not answer: rank 1 (host "), 1) << outcome.output;
  EXPECT_EQ(outcome.count("rank 2"), 0) << outcome.output;
}

TEST(run_main, a_rank_that_is_busy_is_waited_for) {
  const Outcome outcome = run("busy_before_work", 4);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_EQ(outcome.count("stowage: error"), 0) << outcome.output;
}

TEST(run_main, a_rank_that_is_killed_ends_all) {
  const Outcome outcome = run("killed", 4);
  EXPECT_NE(outcome.code, 0);
  EXPECT_NE(outcome.code, 124) << "they hung";
  EXPECT_LE(outcome.count("stowage: error"), 1) << outcome.output;
  EXPECT_GE(outcome.count("signal 9"), 1) << outcome.output;
}

TEST(run_main, other_exceptions_are_runtime_failures) {
  const Outcome outcome = run("foreign", 2);
  EXPECT_EQ(outcome.code, 4);
  EXPECT_EQ(outcome.count("index 12"), 1) << outcome.output;
}

}  // namespace
}  // namespace stowage::parallel
