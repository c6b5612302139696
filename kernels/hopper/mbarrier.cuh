#pragma once

#include <cstdint>

#include "kernels/hopper/shared_address.cuh"

namespace stowage::kernels::hopper {

/// A barrier object in shared memory; a phase ends when all arrivals and all expected bytes are in.
using Mbarrier = std::uint64_t;

/// Sets the number of arrivals of a phase; one thread, followed by `mbarrier_init_fence` and a
/// barrier of the block (or of the cluster).
__device__ __forceinline__ void mbarrier_init(Mbarrier* barrier, std::uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
}

/// Makes initialised barriers visible to the copy engine and to the cluster.
__device__ __forceinline__ void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(Mbarrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}

/// One arrival, and `bytes` more that the copy engine will deliver in this phase.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(Mbarrier* barrier, std::uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}

/// Whether the phase of this parity has ended; may suspend the thread for a short time.
__device__ __forceinline__ bool mbarrier_try_wait(Mbarrier* barrier, std::uint32_t parity) {
  std::uint32_t done;
  asm volatile(
      "{\n.reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n}\n"
      : "=r"(done)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
  return done != 0;
}

/// The same without suspending.
__device__ __forceinline__ bool mbarrier_test_wait(Mbarrier* barrier, std::uint32_t parity) {
  std::uint32_t done;
  asm volatile(
      "{\n.reg .pred p;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n}\n"
      : "=r"(done)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
  return done != 0;
}

/// Waits for the end of the phase of this parity (0 for the first phase). A wait for parity 1 on a
/// fresh barrier returns at once, which is how a producer finds its ring empty at the start.
__device__ __forceinline__ void mbarrier_wait(Mbarrier* barrier, std::uint32_t parity) {
  while (!mbarrier_try_wait(barrier, parity)) {
  }
}

/// A place in a ring of `kStages` buffers and the parity of its barriers in this round.
template <int kStages>
struct RingPosition {
  int stage = 0;
  std::uint32_t parity = 0;

  __device__ __forceinline__ void next() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1U;
    }
  }
};

}  // namespace stowage::kernels::hopper
