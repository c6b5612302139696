#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/attention_layout.hpp"
#include "kernels/hopper/cp_async_bulk.cuh"
#include "kernels/hopper/fence.cuh"
#include "kernels/hopper/global_order.cuh"
#include "kernels/hopper/matrix_move.cuh"
#include "kernels/hopper/mbarrier.cuh"
#include "kernels/hopper/wgmma.cuh"

/// A step's share of dQ = dS K, 64 queries x 64 columns, in the kernels that make dq inside,
/// attention_backward_inside64_sm90.cu and attention_backward_inside128_sm90.cu.
namespace stowage::kernels::attention {

constexpr int kShareBytes = kSumBlock * 4;

/// Brings a warp's 16 keys x 64 queries of dS to shared memory as 8 x 8 matrices of 128 bytes, the
/// next along queries 128 bytes on, the next along keys 1024; `out` is the warp's place.
__device__ __forceinline__ void stage_ds(const std::uint32_t (&ds)[16], unsigned char* out) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::uint32_t base =
      hopper::shared_address(out) + lane / 8 % 2 * 1024 + lane / 16 * 128 + lane % 8 * 16;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    hopper::stmatrix_x4(base + j * 256, ds[4 * j], ds[4 * j + 1], ds[4 * j + 2], ds[4 * j + 3]);
  }
}

/// dq (64 queries x 64 columns) = dS (64 queries x kKeys) times 64 columns of K; issued, not waited
/// for.
template <int kKeys>
__device__ __forceinline__ void issue_dq(float (&dq)[32], const unsigned char* ds,
                                         const unsigned char* k) {
  const std::uint64_t a =
      hopper::wgmma_descriptor(hopper::shared_address(ds), hopper::Swizzle::none, 1024, 128);
  const std::uint64_t b = hopper::mn_major<hopper::Swizzle::b128>(k, kKeys * 128);
#pragma unroll
  for (int i = 0; i < kKeys / 16; ++i) {
    hopper::Wgmma<64>::template ss<1, 1>(dq, hopper::advance(a, i * 2 * 1024),
                                         hopper::advance(b, i * 16 * 128), i > 0);
  }
}

/// Brings a warpgroup's share to where the copy engine adds it from, in the order of registers.
__device__ __forceinline__ void stage_share(const float (&dq)[32], float* share) {
  auto* out = reinterpret_cast<float4*>(share) + threadIdx.x % 128;
#pragma unroll
  for (int j = 0; j < 8; ++j)
    out[128 * j] = make_float4(dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]);
  hopper::fence_proxy_async();
}

/// Adds a share to a block of the sums when `counter`, which counts those before, says that it is
/// its turn, and counts it once its bytes are in memory; by one thread. `full` and `empty`: of the
/// share in shared memory.
__device__ __forceinline__ void add_share(float* sum, int* counter, int turn, const float* share,
                                          hopper::Mbarrier* full, hopper::Mbarrier* empty,
                                          std::uint32_t parity) {
  while (hopper::load_acquire(counter) != turn) {
  }
  hopper::fence_proxy_async_global();  // the copies below come behind those of the turns before
  hopper::mbarrier_wait(full, parity);
  if (turn == 0) {
    hopper::bulk_store(sum, share, kShareBytes);
  } else {
    hopper::bulk_reduce_add_f32(sum, share, kShareBytes);
  }
  hopper::bulk_commit_group();
  hopper::bulk_wait_group_read<0>();
  hopper::mbarrier_arrive(empty);
  hopper::bulk_wait_group<0>();
  hopper::fence_proxy_async_global();
  hopper::store_release(counter, turn + 1);
}

}  // namespace stowage::kernels::attention
