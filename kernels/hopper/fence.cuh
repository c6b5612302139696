#pragma once

namespace stowage::kernels::hopper {

/// Makes this thread's ordinary shared-memory writes visible to wgmma and to the bulk copy engine;
/// each writing thread calls it before the barrier that precedes the reader.
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// The same for global memory: ordinary accesses and bulk copies of the same bytes.
__device__ __forceinline__ void fence_proxy_async_global() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

}  // namespace stowage::kernels::hopper
