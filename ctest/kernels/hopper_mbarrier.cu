#include "ctest/kernels/hopper_mbarrier.hpp"

#include <cuda_runtime.h>

#include "kernels/hopper/cp_async_bulk.cuh"
#include "kernels/hopper/mbarrier.cuh"

namespace stowage::kernels::test {
namespace {

using namespace hopper;

constexpr std::uint32_t kBytes = 16;

__device__ PhaseSeen look(Mbarrier* barrier) {
  PhaseSeen seen{};
  for (std::uint32_t parity = 0; parity < 2; ++parity) {
    seen.test[parity] = mbarrier_test_wait(barrier, parity);
    seen.tried[parity] = mbarrier_try_wait(barrier, parity);
  }
  return seen;
}

/// One thread.
__global__ void phases(const uint4* bytes, PhaseSeen* seen) {
  __shared__ Mbarrier barrier;
  __shared__ uint4 landed;
  mbarrier_init(&barrier, 2);
  mbarrier_init_fence();
  seen[kFresh] = look(&barrier);
  mbarrier_arrive(&barrier);
  seen[kHalf] = look(&barrier);
  mbarrier_arrive(&barrier);
  seen[kFirstEnded] = look(&barrier);
  mbarrier_arrive_expect_tx(&barrier, kBytes);
  mbarrier_arrive(&barrier);
  seen[kExpecting] = look(&barrier);
  bulk_load(&landed, bytes, kBytes, &barrier);
  mbarrier_wait(&barrier, 1);
  seen[kSecondEnded] = look(&barrier);
}

}  // namespace

int run_phases(PhaseSeen (&seen)[kPhasePoints]) {
  void* device = nullptr;
  cudaError_t status = cudaMalloc(&device, kBytes + sizeof(seen));
  if (status != cudaSuccess) return status;
  cudaMemset(device, 0, kBytes + sizeof(seen));
  auto* out = reinterpret_cast<PhaseSeen*>(static_cast<char*>(device) + kBytes);
  phases<<<1, 1>>>(static_cast<const uint4*>(device), out);
  status = cudaGetLastError();
  if (status == cudaSuccess) status = cudaMemcpy(seen, out, sizeof(seen), cudaMemcpyDeviceToHost);
  cudaFree(device);
  return status;
}

}  // namespace stowage::kernels::test
