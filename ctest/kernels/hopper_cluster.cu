#include "ctest/kernels/hopper_cluster.hpp"

#include <cuda_runtime.h>

#include "kernels/hopper/cluster.cuh"
#include "kernels/hopper/cp_async_bulk.cuh"
#include "kernels/hopper/tensor_map.hpp"

namespace stowage::kernels::test {
namespace {

using namespace hopper;

constexpr int kThreads = 128;
constexpr std::uint32_t kBytes = kBoxElements * sizeof(std::uint32_t);

struct Shared {
  alignas(1024) std::uint32_t box[kBoxElements];
  int word;
  Mbarrier full, given, read;
};

__global__ void __cluster_dims__(kClusterBlocks) __launch_bounds__(kThreads)
    add_up(const __grid_constant__ CUtensorMap map, ClusterSums* sums) {
  __shared__ Shared shared;
  const std::uint32_t rank = cluster_block_rank();
  if (threadIdx.x == 0) {
    mbarrier_init(&shared.full, 1);
    mbarrier_init(&shared.given, 1);
    mbarrier_init(&shared.read, kClusterBlocks);  // of both blocks
    mbarrier_init_fence();
  }
  cluster_arrive();
  cluster_wait();
  std::uint32_t sum[kBoxElements / kThreads] = {}, words = 0;
  for (int round = 0; round < kClusterRounds; ++round) {
    const std::uint32_t parity = round % 2;
    if (threadIdx.x == 0) {
      mbarrier_wait(&shared.read, parity ^ 1U);
      mbarrier_arrive_expect_tx(&shared.full, kBytes);
      if (round % kClusterBlocks == static_cast<int>(rank))
        bulk_load_3d_multicast(shared.box, &map, &shared.full, 0, 0, round,
                               (1U << kClusterBlocks) - 1);
      if (rank == 0)
        for (int block = 0; block < kClusterBlocks; ++block) {
          st_shared_cluster(&shared.word, block, round + block);
          fence_cluster();
          mbarrier_arrive_cluster(&shared.given, block);
        }
    }
    mbarrier_wait(&shared.full, parity);
    mbarrier_wait_cluster(&shared.given, parity);
    for (int i = 0; i < kBoxElements / kThreads; ++i)
      sum[i] += shared.box[threadIdx.x + i * kThreads];
    words += static_cast<std::uint32_t>(shared.word);
    __syncthreads();
    if (threadIdx.x < kClusterBlocks) mbarrier_arrive_cluster(&shared.read, threadIdx.x);
  }
  for (int i = 0; i < kBoxElements / kThreads; ++i)
    sums->boxes[rank][threadIdx.x + i * kThreads] = sum[i];
  if (threadIdx.x == 0) sums->words[rank] = words;
  cluster_arrive();
  cluster_wait();
}

}  // namespace

int run_cluster(const std::uint32_t (&boxes)[kClusterRounds][kBoxElements], ClusterSums& sums) {
  void *device = nullptr, *out = nullptr;
  cudaMalloc(&device, sizeof(boxes));
  cudaMalloc(&out, sizeof(sums));
  cudaMemset(out, 0xFF, sizeof(sums));
  cudaMemcpy(device, boxes, sizeof(boxes), cudaMemcpyHostToDevice);
  const std::uint64_t extents[] = {kBoxElements / 8, 8, kClusterRounds};
  const std::uint64_t strides[] = {kBytes / 8, kBytes};
  const std::uint32_t box[] = {kBoxElements / 8, 8, 1};
  const CUtensorMap map =
      make_tensor_map(TensorMapType::int32, device, extents, strides, box, Swizzle::none);
  add_up<<<kClusterBlocks, kThreads>>>(map, static_cast<ClusterSums*>(out));
  cudaError_t status = cudaGetLastError();
  if (status == cudaSuccess) status = cudaMemcpy(&sums, out, sizeof(sums), cudaMemcpyDeviceToHost);
  cudaFree(device);
  cudaFree(out);
  return status;
}

}  // namespace stowage::kernels::test
