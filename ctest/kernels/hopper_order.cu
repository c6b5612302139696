#include "ctest/kernels/hopper_order.hpp"

#include <cuda_runtime.h>

#include "kernels/hopper/cp_async_bulk.cuh"
#include "kernels/hopper/fence.cuh"
#include "kernels/hopper/global_order.cuh"

namespace stowage::kernels::test {
namespace {

using namespace hopper;

/// What the blocks share.
struct Chain {
  int ticket, turn, unused[2];
  float sums[kChainWords];
  std::uint32_t words[kChainWords];
};

/// One thread.
__global__ void chain_kernel(Chain* chain) {
  __shared__ alignas(16) float addends[kChainWords];
  const int ticket = atomicAdd(&chain->ticket, 1);
  for (float& addend : addends) addend = static_cast<float>(ticket);
  fence_proxy_async();
  while (load_acquire(&chain->turn) != ticket) {
  }
  fence_proxy_async_global();
  for (int i = 0; i < kChainWords; ++i)
    chain->words[i] = 3 * chain->words[i] + static_cast<std::uint32_t>(ticket + i);
  if (ticket == 0)
    bulk_store(chain->sums, addends, sizeof(addends));
  else
    bulk_reduce_add_f32(chain->sums, addends, sizeof(addends));
  bulk_commit_group();
  bulk_wait_group<0>();
  fence_proxy_async_global();
  store_release(&chain->turn, ticket + 1);
}

}  // namespace

int run_chain(std::uint32_t (&chained)[kChainWords], float (&sums)[kChainWords]) {
  void* device = nullptr;
  cudaError_t status = cudaMalloc(&device, sizeof(Chain));
  if (status != cudaSuccess) return status;
  auto* chain = static_cast<Chain*>(device);
  cudaMemset(chain, 0, sizeof(Chain));
  cudaMemset(chain->sums, 0xff, sizeof(sums));  // NaN: the first one writes
  chain_kernel<<<kChainBlocks, 1>>>(chain);
  status = cudaGetLastError();
  if (status == cudaSuccess)
    status = cudaMemcpy(chained, chain->words, sizeof(chained), cudaMemcpyDeviceToHost);
  if (status == cudaSuccess)
    status = cudaMemcpy(sums, chain->sums, sizeof(sums), cudaMemcpyDeviceToHost);
  cudaFree(device);
  return status;
}

}  // namespace stowage::kernels::test
