// The same on several ranks, each with data of its own: collectives lie inside the graphs. Built
// twice: for MPI on the host, and for NCCL with a GPU for each rank (STOWAGE_TEST_CUDA).
#include <gtest/gtest.h>

#include "matrix.hpp"
#include "parallel/collectives.hpp"
#include "parallel/mpi.hpp"

#if STOWAGE_TEST_CUDA
#include <cuda_runtime_api.h>

#include "execution/cuda_backend.hpp"
#endif

namespace stowage::ctest {
namespace {

/// Where the ranks of this build compute, and how they reduce.
struct Ranks {
  const parallel::Communicator world = parallel::Communicator::world();
#if STOWAGE_TEST_CUDA
  const int gpu = world.split_by_host().rank();

  bool usable() const {
    int gpus = 0;
    if (cudaGetDeviceCount(&gpus) != cudaSuccess) gpus = 0;
    return world.max(gpus <= gpu ? 1 : 0) == 0;
  }
  std::unique_ptr<execution::Backend> backend() const {
    return execution::make_cuda_backend({gpu});
  }
  std::shared_ptr<parallel::Collectives> collectives() const {
    static const std::unique_ptr<execution::Backend> own = backend();
    static const auto made =
        parallel::make_nccl_collectives(*own, world, "data", {.patience_s = 60});
    return made;
  }
#else
  bool usable() const { return true; }
  std::unique_ptr<execution::Backend> backend() const { return execution::make_host_backend(); }
  std::shared_ptr<parallel::Collectives> collectives() const {
    return parallel::make_host_collectives(world, "data");
  }
#endif

  void adjust(layers::TrainerOptions& options) const {
    options.sharing.ranks = connect();
  }
  parallel::Ranks connect() const {
    parallel::Ranks ranks = parallel::planned_ranks(parallel::fit_grid(world.size()), world.rank());
    for (auto& group : ranks.groups)
      if (group->size() > 1)
        group = std::make_shared<parallel::RankGroup>("data", group->members(), group->rank(), collectives());
    return ranks;
  }
};

TEST(matrix_mpi, every_pair_of_choices_gives_the_bits_of_the_plain_run) {
  const Ranks ranks;
  if (!ranks.usable()) GTEST_SKIP() << "no GPU for each rank";
  Matrix cells({.backend = [&] { return ranks.backend(); },
                .adjust = [&](layers::TrainerOptions& options) { ranks.adjust(options); },
                .rank = ranks.world.rank(),
                .collective_nodes = STOWAGE_TEST_CUDA ? 0 : 1});
  for (const Cell& cell : pairwise_cells()) cells.check(cell);
  for (const Cell& cell : knob_cells()) cells.check(cell);
}

TEST(matrix_mpi, every_pair_of_choices_gives_the_bits_of_the_plain_run_with_zero) {
  const Ranks ranks;
  if (!ranks.usable()) GTEST_SKIP() << "no GPU for each rank";
  Matrix cells({.backend = [&] { return ranks.backend(); },
                .adjust =
                    [&](layers::TrainerOptions& options) {
                      ranks.adjust(options);
                      options.sharing.zero = true;
                    },
                .rank = ranks.world.rank(),
                .collective_nodes = STOWAGE_TEST_CUDA ? 0 : 1});
  for (const Cell& cell : pairwise_cells()) cells.check(cell);
}

}  // namespace
}  // namespace stowage::ctest
