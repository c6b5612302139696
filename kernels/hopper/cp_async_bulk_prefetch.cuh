#pragma once

#include <cuda.h>

namespace stowage::kernels::hopper {

/// Brings the box at the given coordinates into L2, ahead of its load. One thread calls it.
__device__ __forceinline__ void bulk_prefetch_3d(const CUtensorMap* map, int c0, int c1, int c2) {
  asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %2, %3}];" ::"l"(map),
               "r"(c0), "r"(c1), "r"(c2)
               : "memory");
}

}  // namespace stowage::kernels::hopper
