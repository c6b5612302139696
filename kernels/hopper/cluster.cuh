#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

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

/// `*pointer` as block `rank` of the cluster has it in its shared memory: 4 or 8 bytes.
template <class T>
__device__ __forceinline__ T ld_shared_cluster(const T* pointer, std::uint32_t rank) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t> bits;
  const std::uint32_t address = mapa(pointer, rank);
  if constexpr (sizeof(T) == 4)
    asm volatile("ld.shared::cluster.b32 %0, [%1];" : "=r"(bits) : "r"(address) : "memory");
  else
    asm volatile("ld.shared::cluster.b64 %0, [%1];" : "=l"(bits) : "r"(address) : "memory");
  T value;
  memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace stowage::kernels::hopper
