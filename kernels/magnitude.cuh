#pragma once

#include "kernels/pack.cuh"

/// The largest magnitude of what a kernel writes, as a second output. Magnitudes are compared as
/// integers, whose order is that of the values and puts NaN above all: the result depends on no
/// order.
namespace stowage::kernels::device {

/// Bits of the largest magnitude in 16 bytes, as fp32.
template <class S>
__device__ __forceinline__ std::uint32_t largest_of(const uint4& pack) {
  const std::uint32_t words[4] = {pack.x, pack.y, pack.z, pack.w};
  std::uint32_t largest = 0;
#pragma unroll
  for (const std::uint32_t word : words) {
    if constexpr (sizeof(S) == 2)
      largest = __vmaxu2(largest, word & 0x7fff7fffU);
    else
      largest = max(largest, word & 0x7fffffffU);
  }
  if constexpr (sizeof(S) == 2) largest = max(largest & 0xffff0000U, largest << 16);
  return largest;
}
template <class S>
__device__ __forceinline__ std::uint32_t largest_of(S value) {
  return __float_as_uint(to_float(value)) & 0x7fffffffU;
}

/// What amax is by now. It only grows.
__device__ __forceinline__ std::uint32_t known_largest(const float* amax) {
  return *reinterpret_cast<const volatile std::uint32_t*>(amax);
}

/// amax becomes the larger of itself and that of a whole warp, which needs no atomic if it is not
/// above `known`: one that a block reads before its data, so that nothing waits for it, spares all
/// but the first blocks of a launch of many the atomic.
__device__ __forceinline__ void add_largest(std::uint32_t largest, std::uint32_t known,
                                            float* amax) {
  largest = __reduce_max_sync(0xffffffffU, largest);
  if (threadIdx.x % 32 == 0 && largest > known)
    atomicMax(reinterpret_cast<std::uint32_t*>(amax), largest);
}
/// Of blocks that are few.
__device__ __forceinline__ void add_largest(std::uint32_t largest, float* amax) {
  add_largest(largest, 0, amax);
}
/// That of a whole block of kThreads: one atomic, for launches whose blocks all end at once.
template <int kThreads>
__device__ __forceinline__ void add_block_largest(std::uint32_t largest, float* amax) {
  constexpr int kWarps = kThreads / 32;
  __shared__ std::uint32_t of_warps[kWarps];
  largest = __reduce_max_sync(0xffffffffU, largest);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = largest;
  __syncthreads();
  if (threadIdx.x < 32) add_largest(threadIdx.x < kWarps ? of_warps[threadIdx.x] : 0, amax);
}

/// Before the kernel that adds to it; null: there is none.
inline cudaError_t clear_largest(float* amax, cudaStream_t stream) {
  return amax == nullptr ? cudaSuccess : cudaMemsetAsync(amax, 0, sizeof *amax, stream);
}

/// Calls f.operator()<measured>().
template <class F>
void with_measured(bool measured, F&& f) {
  measured ? f.template operator()<true>() : f.template operator()<false>();
}

}  // namespace stowage::kernels::device
