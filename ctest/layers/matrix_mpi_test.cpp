// The same on several ranks, each with data of its own: collectives lie inside the graphs. Built
// twice: for MPI on the host, and for NCCL with a GPU for each rank (STOWAGE_TEST_CUDA).
#include <gtest/gtest.h>

#include "matrix.hpp"
#include "parallel/collectives.hpp"
#include "parallel/mpi.hpp"

#if STOWAGE_TEST_CUDA
#include <cuda_runtime_api.h>

#include "execution/cuda_backend.hpp"
#include "parallel/nccl.hpp"
#endif

namespace stowage::ctest {
namespace {

class matrix_mpi : public testing::Test {
 protected:
#if STOWAGE_TEST_CUDA
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess) devices = 0;
    gpu_ = world_.split_by_host().rank();
    if (world_.max(devices <= gpu_ ? 1 : 0) != 0) GTEST_SKIP() << "no GPU for each rank";
    const parallel::NcclOptions options{.patience_s = 60};
    parallel::pin_nccl(options);
    backend_ = make_backend();
    collectives_ = parallel::make_nccl_collectives(*backend_, world_, "data", options);
  }
  std::unique_ptr<execution::Backend> make_backend() const {
    return execution::make_cuda_backend({gpu_});
  }
  int gpu_ = 0;
#else
  void SetUp() override { collectives_ = parallel::make_host_collectives(world_, "data"); }
  static std::unique_ptr<execution::Backend> make_backend() {
    return execution::make_host_backend();
  }
#endif

  void adjust(layers::TrainerOptions& options) const {
    options.ranks = world_.size();
    options.state.shards = world_.size();
    options.all_reduce = [collectives = collectives_](
                             const layers::Program& program, std::string name,
                             std::span<const execution::Tensor> tensors, layers::Reduction how) {
      const auto reduction =
          how == layers::Reduction::sum ? parallel::Reduction::sum : parallel::Reduction::min;
      return parallel::all_reduce_op(program, std::move(name), tensors, reduction, collectives);
    };
  }

  const parallel::Communicator world_ = parallel::Communicator::world();
  std::unique_ptr<execution::Backend> backend_;
  std::shared_ptr<parallel::Collectives> collectives_;
};

TEST_F(matrix_mpi, every_pair_of_choices_gives_the_bits_of_the_plain_run) {
  Matrix cells({.backend = [this] { return make_backend(); },
                .adjust = [this](layers::TrainerOptions& options) { adjust(options); },
                .rank = world_.rank()});
  for (const Cell& cell : pairwise_cells()) cells.check(cell);
  for (const Cell& cell : knob_cells()) cells.check(cell);
}

}  // namespace
}  // namespace stowage::ctest
