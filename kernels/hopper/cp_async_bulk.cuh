#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/hopper/mbarrier.cuh"
#include "kernels/hopper/shared_address.cuh"

namespace stowage::kernels::hopper {

/// L2 policies of a bulk copy (the values that createpolicy gives for a whole-range fraction of 1).
enum class CachePolicy : std::uint64_t {
  evict_normal = 0x1000000000000000ULL,
  evict_first = 0x12F0000000000000ULL,
  evict_last = 0x14F0000000000000ULL
};

/// Brings a tensor map (a `__grid_constant__` parameter) into the descriptor cache.
__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/// Loads the box at the given coordinates (innermost first, in elements) into shared memory; its
/// bytes count on `barrier`. Elements out of bounds arrive as zeros and count. One thread calls it.
__device__ __forceinline__ void bulk_load_2d(void* shared, const CUtensorMap* map,
                                             Mbarrier* barrier, int c0, int c1,
                                             CachePolicy policy = CachePolicy::evict_normal) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "l"(policy)
      : "memory");
}

__device__ __forceinline__ void bulk_load_3d(void* shared, const CUtensorMap* map,
                                             Mbarrier* barrier, int c0, int c1, int c2,
                                             CachePolicy policy = CachePolicy::evict_normal) {
  // The default needs no operand; producers have few registers.
  if (policy == CachePolicy::evict_normal) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(shared_address(shared)),
        "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2)
        : "memory");
    return;
  }
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2), "l"(policy)
      : "memory");
}

__device__ __forceinline__ void bulk_load_5d(void* shared, const CUtensorMap* map,
                                             Mbarrier* barrier, int c0, int c1, int c2, int c3,
                                             int c4,
                                             CachePolicy policy = CachePolicy::evict_normal) {
  if (policy == CachePolicy::evict_normal) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(shared_address(shared)),
        "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
        : "memory");
    return;
  }
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4),
      "l"(policy)
      : "memory");
}

/// Stores a box from shared memory; elements out of bounds are left out. Preceded by
/// `fence_proxy_async` in the writing threads and a barrier; followed by `bulk_commit_group`.
__device__ __forceinline__ void bulk_store_2d(const CUtensorMap* map, const void* shared, int c0,
                                              int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
      "r"(shared_address(shared)), "r"(c0), "r"(c1)
      : "memory");
}

__device__ __forceinline__ void bulk_store_3d(const CUtensorMap* map, const void* shared, int c0,
                                              int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
      "r"(shared_address(shared)), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}

/// Copies `bytes` contiguous bytes (a multiple of 16, both ends 16-byte aligned) into shared
/// memory.
__device__ __forceinline__ void bulk_load(void* shared, const void* global, std::uint32_t bytes,
                                          Mbarrier* barrier,
                                          CachePolicy policy = CachePolicy::evict_normal) {
  if (policy == CachePolicy::evict_normal) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1], %2, [%3];" ::"r"(shared_address(shared)),
        "l"(global), "r"(bytes), "r"(shared_address(barrier))
        : "memory");
    return;
  }
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1], %2, [%3], %4;" ::"r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}

/// Copies contiguous bytes out of shared memory, under the same alignment.
__device__ __forceinline__ void bulk_store(void* global, const void* shared, std::uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global),
               "r"(shared_address(shared)), "r"(bytes)
               : "memory");
}

/// Adds contiguous fp32 from shared memory to global memory; each element once, in no given order
/// relative to other copies.
__device__ __forceinline__ void bulk_reduce_add_f32(float* global, const void* shared,
                                                    std::uint32_t bytes,
                                                    CachePolicy policy = CachePolicy::evict_last) {
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.L2::cache_hint.add.f32 [%0], [%1], %2, "
      "%3;" ::"l"(global),
      "r"(shared_address(shared)), "r"(bytes), "l"(policy)
      : "memory");
}

/// Closes the group of this thread's bulk stores and reductions.
__device__ __forceinline__ void bulk_commit_group() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/// Waits until at most `kPending` groups of this thread are unfinished.
template <int kPending>
__device__ __forceinline__ void bulk_wait_group() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

/// Waits until at most `kPending` groups of this thread still read shared memory.
template <int kPending>
__device__ __forceinline__ void bulk_wait_group_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

}  // namespace stowage::kernels::hopper
