// Cases that end early on rank 1 while the other ranks wait for it; mpi_main_test starts them.
#include <gtest/gtest.h>
#include <mpi.h>

#include <stdexcept>

namespace {

/// What ranks share: each waits for the others when it gives it back.
struct Shared {
  Shared() = default;
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() { MPI_Barrier(MPI_COMM_WORLD); }
};

int own_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

TEST(early_end, by_an_exception) {
  const Shared shared;
  if (own_rank() == 1) throw std::runtime_error("rank 1 has had enough");
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(early_end, by_an_assertion) {
  ASSERT_NE(own_rank(), 1) << "rank 1 goes no further";
  MPI_Barrier(MPI_COMM_WORLD);
}

/// Ranks go on together.
TEST(early_end, not_by_an_expectation) {
  EXPECT_NE(own_rank(), 1) << "rank 1 goes on";
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(early_end, not_at_all) { MPI_Barrier(MPI_COMM_WORLD); }

}  // namespace
