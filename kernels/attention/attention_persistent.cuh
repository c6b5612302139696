#pragma once

#include <cuda_runtime.h>

#include <type_traits>

#include "kernels/hopper/dependent_launch.cuh"
#include "kernels/hopper/griddepcontrol.cuh"
#include "kernels/hopper/setmaxnreg.cuh"
#include "kernels/hopper/shared_address.cuh"
#include "kernels/hopper/warp.cuh"

/// How the kernels of one attention call follow one another.
namespace stowage::kernels::attention {

/// First statement of a kernel after what depends on no other: lets the next kernel of the call
/// line up for free multiprocessors, and waits for the results of those before.
__device__ __forceinline__ void join_call() {
  hopper::griddepcontrol_launch_dependents();
  hopper::griddepcontrol_wait();
}

/// A block's dynamic shared memory as an S that begins at a multiple of 1024 bytes, which swizzled
/// tiles need; the launch adds as much.
template <class S>
__device__ __forceinline__ S& aligned_shared(unsigned char* raw) {
  return *reinterpret_cast<S*>(raw + ((1024U - (hopper::shared_address(raw) & 1023U)) & 1023U));
}

/// Splits a block into its producer, warp 0, and consumers, the warpgroups after the first, each
/// with its share of the registers, in the one branch that setmaxnreg asks for.
template <class T, class Produce, class Consume>
__device__ __forceinline__ void split_roles(Produce&& produce, Consume&& consume) {
  constexpr int kLaunchedWith = 65536 / T::kThreads / 8 * 8;  // registers of a thread
  static_assert(128 * T::kProducerRegisters + (T::kThreads - 128) * T::kConsumerRegisters <=
                    kLaunchedWith * T::kThreads,
                "consumers would wait for registers for ever");
  const int group = hopper::uniform_warp_index() / 4;
  if (group == 0) {
    hopper::setmaxnreg_dec<T::kProducerRegisters>();
    if (hopper::uniform_warp_index() == 0) produce();
  } else {
    hopper::setmaxnreg_inc<T::kConsumerRegisters>();
    consume(group - 1);
  }
}

/// Calls `launch` with those tile sizes that are of the head dimension, and whether keys are
/// masked, both as types.
template <class... Tiles, class Launch>
cudaError_t with_tiles(int head_dim, bool causal, Launch&& launch) {
  cudaError_t status = cudaErrorInvalidValue;
  const auto with = [&](auto tiles) {
    status = causal ? launch(tiles, std::true_type{}) : launch(tiles, std::false_type{});
    return true;
  };
  static_cast<void>(((head_dim == Tiles::kHeadDim && with(Tiles{})) || ...));
  return status;
}

/// Launches persistent blocks with room for an S each, of a kernel that calls join_call() before it
/// reads or writes memory, behind another one of the same call.
template <auto kKernel, class S, class... Arguments>
cudaError_t launch_persistent(int blocks, int threads, cudaStream_t stream,
                              const Arguments&... arguments) {
  constexpr int kBytes = sizeof(S) + 1024;
  static const cudaError_t raised =
      cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (raised != cudaSuccess) return raised;
  return hopper::launch_dependent(kKernel, dim3(static_cast<unsigned>(blocks)),
                                  static_cast<unsigned>(threads), kBytes, stream, arguments...);
}

}  // namespace stowage::kernels::attention
