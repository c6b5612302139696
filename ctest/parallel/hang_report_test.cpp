// Who has come to a collective, asked by rank 0 of the others.
#include "parallel/watch/hang_report.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "ctest/parallel/mpi_support.hpp"

namespace stowage::parallel {
namespace {

using namespace std::chrono_literals;

class hang_report : public MpiTest {
 protected:
  /// Rank 0 asks; the others answer with what they are given, or are silent. @return rank 0's text
  std::string ask(const Presence& mine, bool silent, HangReport::Seconds patience = 20s) {
    HangReport calls(world);
    std::string text;
    MPI_Request request = MPI_REQUEST_NULL;
    if (world.rank() == 0) text = calls.call(mine, patience);
    STOWAGE_MPI(MPI_Ibarrier(world.handle(), &request));
    for (int done = 0; done == 0; std::this_thread::sleep_for(1ms)) {
      if (!silent) calls.answer(mine);
      STOWAGE_MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
    }
    return text;
  }
  std::string place(int rank) const { return fmt::format("rank {} (host {})", rank, host_name()); }
};

constexpr std::string_view kAll = "all ranks have come";

TEST_F(hang_report, ranks_in_the_same_collective_and_beyond_have_come) {
  const Presence here{.begun = 2, .ended = 1, .name = "b"};
  const Presence beyond{.begun = 3, .ended = 2, .name = "c"};
  const std::string text = ask(world.rank() == 1 ? beyond : here, false);
  EXPECT_EQ(text, world.rank() == 0 ? kAll : "");
}

TEST_F(hang_report, a_rank_that_has_not_come_is_named_with_its_place) {
  if (world.size() == 1) GTEST_SKIP() << "nobody to ask";
  const Presence here{.begun = 2, .ended = 1, .name = "b"};
  const Presence behind{.begun = 1, .ended = 1, .name = "a"};
  const std::string text = ask(world.rank() == 1 ? behind : here, false);
  if (world.rank() != 0) return;
  EXPECT_EQ(text, "has not come: " + place(1) + ", which has ended a, number 1");
}

TEST_F(hang_report, another_collective_of_the_same_number_is_not_the_same) {
  if (world.size() == 1) GTEST_SKIP() << "nobody to ask";
  const Presence here{.begun = 2, .ended = 1, .name = "b"};
  const Presence elsewhere{.begun = 2, .ended = 1, .name = std::string(1000, 'x')};
  const std::string text = ask(world.rank() == 1 ? elsewhere : here, false);
  if (world.rank() != 0) return;
  EXPECT_EQ(text, "has not come: " + place(1) + ", which waits in " + std::string(239, 'x') +
                      ", number 2");
}

TEST_F(hang_report, a_rank_that_is_silent_is_named) {
  if (world.size() == 1) GTEST_SKIP() << "nobody to ask";
  const Presence here{.begun = 2, .ended = 1, .name = "b"};
  const std::string text = ask(here, world.rank() == 1, 1s);
  EXPECT_EQ(text, world.rank() == 0 ? "does not answer: " + place(1) : "");
}

}  // namespace
}  // namespace stowage::parallel
