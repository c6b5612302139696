// MPI's lifetime, communicators and checked calls.
#include "parallel/job/mpi.hpp"

#include <gtest/gtest.h>

#include "ctest/parallel/mpi_support.hpp"
#include "parallel/job/clock_offset.hpp"

namespace stowage::parallel {
namespace {

class mpi : public MpiTest {};

TEST_F(mpi, errors_name_the_call_its_text_and_the_place) {
  const int nobody = world.size();
  try {
    const int value = 0;
    STOWAGE_MPI(MPI_Send(&value, 1, MPI_INT, nobody, 0, world.handle()));
    FAIL() << "a message to nobody was sent";
  } catch (const execution::Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(error.exit(), execution::Exit::runtime);
    EXPECT_NE(text.find("MPI_Send(&value, 1, MPI_INT, nobody"), std::string::npos) << text;
    EXPECT_NE(text.find("invalid rank"), std::string::npos) << text;
    EXPECT_NE(text.find("mpi_test.cpp:"), std::string::npos) << text;
  }
}

TEST_F(mpi, error_prefix_names_rank_and_host) {
  EXPECT_EQ(execution::error_prefix(),
            fmt::format("rank {} (host {}): ", world.rank(), host_name()));
}

TEST_F(mpi, narrow_refuses_what_does_not_fit) {
  EXPECT_EQ(narrow<int>(std::int64_t{1} << 30), 1 << 30);
  EXPECT_THROW((void)narrow<int>(std::int64_t{1} << 31), execution::Error);
  EXPECT_THROW((void)narrow<unsigned>(-1), execution::Error);
}

TEST_F(mpi, split_orders_by_key) {
  const Communicator reversed = world.split(0, -world.rank());
  EXPECT_EQ(reversed.size(), world.size());
  EXPECT_EQ(reversed.rank(), world.size() - 1 - world.rank());
}

TEST_F(mpi, split_separates_colors) {
  const Communicator halves = world.split(world.rank() % 2, 0);
  EXPECT_EQ(halves.rank(), world.rank() / 2);
  EXPECT_EQ(halves.max(world.rank()), world.size() == 1 ? 0 : world.size() - 2 + world.rank() % 2);
}

TEST_F(mpi, communicators_move) {
  Communicator first = world.duplicate();
  const MPI_Comm handle = first.handle();
  Communicator second = std::move(first);
  EXPECT_EQ(second.handle(), handle);
  EXPECT_EQ(first.handle(), MPI_COMM_NULL);
  first = std::move(second);
  EXPECT_EQ(first.handle(), handle);
  first.barrier();
}

TEST_F(mpi, max_broadcast_and_gather) {
  EXPECT_EQ(world.max(-5 - world.rank()), -5);
  const std::string mine(static_cast<std::size_t>(world.rank()) * 3,
                         static_cast<char>('a' + world.rank()));
  EXPECT_EQ(world.broadcast(world.rank() == 0 ? "deck" : "ignored, and longer"), "deck");
  EXPECT_EQ(world.broadcast(""), "");
  const std::vector<std::string> all = world.gather(mine);
  ASSERT_EQ(all.size(), world.rank() == 0 ? static_cast<std::size_t>(world.size()) : 0U);
  for (std::size_t r = 0; r < all.size(); ++r)
    EXPECT_EQ(all[r], std::string(r * 3, static_cast<char>('a' + r)));
}

TEST_F(mpi, clocks_of_one_host_agree_and_others_are_found) {
  EXPECT_EQ(clock_offset_s(world), 0);
  const double ahead_s = 1e3 * world.rank();
  const double found_s =
      clock_offset_s(world, [&] { return execution::steady_seconds() + ahead_s; });
  EXPECT_NEAR(found_s, ahead_s, 1);  // a trip of two seconds, where cores are shared
}

}  // namespace
}  // namespace stowage::parallel
