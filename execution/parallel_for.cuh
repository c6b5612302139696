#pragma once

#include <cuda_runtime.h>

#include <type_traits>

#include "execution/parallel_for.hpp"

/// The CUDA half of parallel_for: include it in the .cu file that instantiates a functor.

namespace stowage::execution::detail {

/// Threads of a block: full occupancy for kernels of few registers, on every architecture.
inline constexpr int kPortableThreads = 256;

/// One thread per element; a grid-stride loop beyond what one grid covers.
template <class Functor>
__global__ void __launch_bounds__(kPortableThreads)
    parallel_for_kernel(std::int64_t count, const Functor functor) {
  const std::int64_t stride = std::int64_t{gridDim.x} * kPortableThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kPortableThreads + threadIdx.x; i < count;
       i += stride)
    functor(i);
}

template <class Functor>
int launch_on_stream(void* stream, std::int64_t count, const Functor& functor) {
  static_assert(std::is_trivially_copyable_v<Functor>, "a functor is copied to the device");
  constexpr std::int64_t kMostBlocks = 0x7fffffff;
  const std::int64_t blocks = (count + kPortableThreads - 1) / kPortableThreads;
  parallel_for_kernel<<<static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks),
                        kPortableThreads, 0, static_cast<cudaStream_t>(stream)>>>(count, functor);
  return cudaGetLastError();
}

}  // namespace stowage::execution::detail

/// At namespace scope of one .cu file, for each functor type.
#define STOWAGE_INSTANTIATE_PARALLEL_FOR(Functor)                                           \
  template int ::stowage::execution::detail::launch_on_stream<Functor>(void*, std::int64_t, \
                                                                       const Functor&)
