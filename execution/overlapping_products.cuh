#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

/// How kernels that move bytes are made to find room on SMs that products hold to their end:
/// persistent blocks with 384 threads of 160 registers and all shared memory but 2 KiB. A quarter
/// of an SM has 16384 registers for three of a block's warps and leaves room for one more of 32:
/// `__maxnreg__(kRegistersOverlapping)`. Blocks of 168 registers a thread leave none.
namespace stowage::execution::overlapping {

inline constexpr int kWarp = 32;
inline constexpr int kRegistersOverlapping = 32;

/// An SM divides its memory between shared memory and cache anew only when it is empty. A kernel
/// without shared memory that says nothing may wait for that.
template <auto kKernel>
cudaError_t keep_division_of_products() {
  static const cudaError_t kept = cudaFuncSetAttribute(
      kKernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  return kept;
}

/// How many blocks there are, and how many times each does what its warp does at once.
struct Rounds {
  unsigned blocks;
  int rounds;
};

/// Enough blocks for all SMs where the work suffices, and then so much each that its start is worth
/// its while. @param at_once things that a warp does at once
inline Rounds rounds_of(std::int64_t things, std::int64_t at_once) {
  constexpr std::int64_t kPlentyOfBlocks = 1024, kMostRounds = 16;
  const std::int64_t rounds =
      std::clamp<std::int64_t>(things / (at_once * kPlentyOfBlocks), 1, kMostRounds);
  const std::int64_t blocks = (things + rounds * at_once - 1) / (rounds * at_once);
  return {static_cast<unsigned>(std::max<std::int64_t>(blocks, 1)), static_cast<int>(rounds)};
}

}  // namespace stowage::execution::overlapping
