// MPI's lifetime, communicators and checked calls.
#include "parallel/job/mpi.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "ctest/parallel/mpi_support.hpp"
#include "parallel/job/clock_offset.hpp"
#include "parallel/job/waits.hpp"

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

// The last rank comes once it is told that another one waits; of a broadcast, the first.
TEST_F(mpi, a_rank_that_waits_says_in_which_call) {
  const int last = world.size() - 1;
  if (last == 0) GTEST_SKIP() << "nobody to wait for";
  const auto expect_call = [&](const char* name, int late, auto&& call) {
    const int waiter = last - late;
    std::string said;
    std::thread looks;
    if (world.rank() == waiter)
      looks = std::thread([&] {
        LongestWait wait;
        for (; wait.lasts.count() <= 0; wait = longest_wait()) std::this_thread::yield();
        said = wait.call;
        STOWAGE_MPI(MPI_Send(nullptr, 0, MPI_BYTE, late, 0, MPI_COMM_WORLD));
      });
    if (world.rank() == late)
      STOWAGE_MPI(MPI_Recv(nullptr, 0, MPI_BYTE, waiter, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    call();
    if (!looks.joinable()) return;
    looks.join();
    EXPECT_EQ(said, name);
  };
  expect_call("MPI_Comm_dup", last, [&] { (void)world.duplicate(); });
  expect_call("MPI_Comm_split", last, [&] { (void)world.split(0, 0); });
  expect_call("MPI_Comm_split_type", last, [&] { (void)world.split_by_host(); });
  expect_call("MPI_Barrier", last, [&] { world.barrier(); });
  expect_call("MPI_Allreduce", last, [&] { (void)world.max(1); });
  expect_call("MPI_Allreduce", last, [&] { (void)world.sum(1); });
  expect_call("MPI_Gather", last, [&] { (void)world.gather("here"); });
  expect_call("MPI_Bcast", 0, [&] { (void)world.broadcast("here"); });
  std::byte byte{};
  expect_call("MPI_Recv", last, [&] {
    if (world.rank() == last) world.send({&byte, 1}, 0);
    if (world.rank() == 0) world.receive({&byte, 1}, last);
  });
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
