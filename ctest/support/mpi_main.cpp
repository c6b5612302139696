// The main program of a test on several ranks. All ranks run the same cases in the same order; only
// rank 0 reports, except that a failed assertion is printed by the rank on which it failed. The
// exit code is the worst of all ranks, so a failure on any rank fails the test.
//
// What ends a case early on one rank would leave the others waiting for it: an exception that a
// case does not catch, or a failed ASSERT, ends all ranks at once.
#include <gtest/gtest.h>
#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>

namespace {

/// Prints failures with their rank; replaces the default printer on all ranks but the first.
class RankPrinter : public testing::EmptyTestEventListener {
 public:
  explicit RankPrinter(int rank) : rank_(rank) {}

  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.failed()) {
      std::fprintf(stderr, "[rank %d] %s:%d: %s\n", rank_,
                   result.file_name() != nullptr ? result.file_name() : "?", result.line_number(),
                   result.summary());
    }
  }

 private:
  int rank_;
};

/// Open MPI 5 drops what its launcher has not read yet.
[[noreturn]] void end_ranks() {
  std::fflush(stdout);
  std::this_thread::sleep_for(std::chrono::milliseconds(40));
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

/// Ends all ranks if a case ends early; stands behind the printer.
class Ender : public testing::EmptyTestEventListener {
 public:
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.fatally_failed()) end_ranks();
  }
};

/// Instead of unwinding: destructors of what ranks share may wait for the others too.
[[noreturn]] void end_by_exception() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::string what = "no exception";
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    what = error.what();
  } catch (...) {
    what = "not a std::exception";
  }
  std::fprintf(stderr, "[rank %d] ends all ranks: %s\n", rank, what.c_str());
  end_ranks();
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  testing::InitGoogleTest(&argc, argv);
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (rank != 0) {
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new RankPrinter(rank));
  }
  if (ranks > 1) {
    listeners.Append(new Ender);
    testing::FLAGS_gtest_catch_exceptions = false;
    std::set_terminate(end_by_exception);
  }
  int failed = RUN_ALL_TESTS();
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return failed;
}
