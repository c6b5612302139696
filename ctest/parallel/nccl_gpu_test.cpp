// Collectives on NCCL: one GPU for each rank, so a run on one machine with few GPUs skips most.
#include <cuda_runtime_api.h>

#include <cstring>

#include "ctest/parallel/mpi_support.hpp"
#include "execution/cuda_backend.hpp"
#include "parallel/groups/collectives.hpp"
#include "parallel/transport/nccl.hpp"

namespace stowage::parallel {
namespace {

using execution::Bf16;
using execution::Dtype;
using execution::Lane;
using execution::MemoryKind;

class nccl_gpu : public MpiTest {
 protected:
  static constexpr std::int64_t kCount = 30011;

  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess) devices = 0;
    const int place = world.split_by_host().rank();
    if (world.max(devices <= place ? 1 : 0) != 0) GTEST_SKIP() << "no GPU for each rank";
    backend = execution::make_cuda_backend({place});
    comm = backend->make_queue(Lane::comm, "comm");
    device = backend->allocate(MemoryKind::device, kCount * 4);
    host = backend->allocate(MemoryKind::host, kCount * 4);
    group = std::make_shared<Collectives>(
        make_nccl_transport(*backend, world, "data", {.patience_s = 60}, &bytes));
    index = group->transport().announce("test");
    room = backend->allocate(
        MemoryKind::device, reduce_workspace_bytes(kCount, Dtype::fp32, Dtype::fp32, world.size()));
  }

  /// This rank's element i: small integers, exact in bf16 and in sums over few ranks.
  static int element(int rank, std::int64_t i) { return static_cast<int>((i * 5 + rank * 3) % 17); }

  template <class T>
  void put() {
    T* values = reinterpret_cast<T*>(host->data());
    for (std::int64_t i = 0; i < kCount; ++i)
      values[i] = static_cast<T>(static_cast<float>(element(world.rank(), i)));
    comm->copy(device->data(), host->data(), kCount * sizeof(T));
  }

  template <class T>
  std::vector<T> get() {
    comm->copy(host->data(), device->data(), kCount * sizeof(T));
    comm->synchronize();
    std::vector<T> values(kCount);
    std::memcpy(values.data(), host->data(), kCount * sizeof(T));
    return values;
  }

  template <class T>
  void expect_sums(int times = 1) {
    const std::vector<T> values = get<T>();
    for (std::int64_t i = 0; i < kCount; ++i) {
      double sum = 0;
      for (int rank = 0; rank < world.size(); ++rank) sum += element(rank, i);
      for (int repeat = 1; repeat < times; ++repeat) sum *= world.size();
      ASSERT_EQ(static_cast<double>(values[i]), sum) << i;
    }
  }

  void reduce(Dtype dtype, Reduction reduction = Reduction::sum) {
    group->all_reduce(*comm, index, device->data(), kCount, dtype, reduction, dtype, room->data());
  }

  std::unique_ptr<execution::Backend> backend;
  std::unique_ptr<execution::Queue> comm;
  std::unique_ptr<execution::Arena> device, host, room;
  std::shared_ptr<Collectives> group;
  std::int64_t bytes = 0;
  int index = 0;
};

TEST_F(nccl_gpu, sums_of_every_dtype) {
  put<float>();
  reduce(Dtype::fp32);
  expect_sums<float>();
  put<std::int32_t>();
  reduce(Dtype::int32);
  expect_sums<std::int32_t>();
  put<Bf16>();
  reduce(Dtype::bf16);
  expect_sums<Bf16>();
}

TEST_F(nccl_gpu, least_of_all_ranks) {
  put<std::int32_t>();
  reduce(Dtype::int32, Reduction::min);
  const std::vector<std::int32_t> values = get<std::int32_t>();
  for (std::int64_t i = 0; i < kCount; ++i) {
    int least = element(0, i);
    for (int rank = 1; rank < world.size(); ++rank) least = std::min(least, element(rank, i));
    ASSERT_EQ(values[i], least) << i;
  }
}

TEST_F(nccl_gpu, a_captured_collective_runs_at_every_launch) {
  put<float>();
  backend->begin_capture(*comm);
  reduce(Dtype::fp32);
  const auto graph = backend->end_capture(*comm);
  // The collective between its two progress marks; of one rank there is nothing to reduce.
  EXPECT_GE(graph->nodes(), world.size() > 1 ? 3U : 2U);
  for (int launch = 0; launch < 3; ++launch) graph->launch(*comm);
  expect_sums<float>(3);
}

TEST_F(nccl_gpu, its_memory_is_known) {
  EXPECT_GE(bytes, 0);
  EXPECT_LT(bytes, std::int64_t{4} << 30);
  EXPECT_FALSE(nccl_version().empty());
}

}  // namespace
}  // namespace stowage::parallel
