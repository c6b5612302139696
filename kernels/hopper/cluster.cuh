#pragma once

#include <cstdint>

#include "kernels/hopper/shared_address.cuh"

namespace stowage::kernels::hopper {

/// The rank of this block in its cluster.
__device__ __forceinline__ std::uint32_t cluster_block_rank() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// Arrives at the cluster's barrier; writes to shared memory before it are seen after the wait.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// The shared::cluster address of `pointer`'s place in block `rank` of the cluster.
__device__ __forceinline__ std::uint32_t mapa(const void* pointer, std::uint32_t rank) {
  std::uint32_t address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(address)
               : "r"(shared_address(pointer)), "r"(rank));
  return address;
}

}  // namespace stowage::kernels::hopper
