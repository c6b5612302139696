#pragma once

#include <cuda_runtime_api.h>

#include "kernels/conv1d/conv1d_cuda.hpp"

/// The launches of the convolution's kernels, behind the checks of conv1d_cuda.cpp.
namespace stowage::kernels::conv1d {

inline constexpr int kStrip = 64;  ///< tokens of a warp
inline constexpr int kWarps = 8;   ///< of a block, along the tokens: 512 tokens
inline constexpr int kSums = 5;    ///< dw of four taps, db

/// Blocks along the tokens, each with one partial sum a channel.
inline std::int64_t token_blocks(const Conv1dCudaShape& shape) {
  return (shape.tokens + kStrip * kWarps - 1) / (kStrip * kWarps);
}

cudaError_t launch_forward(const Conv1dCudaShape& shape, const Conv1dCudaForward& args,
                           cudaStream_t stream);
cudaError_t launch_backward(const Conv1dCudaShape& shape, const Conv1dCudaBackward& args,
                            cudaStream_t stream);

}  // namespace stowage::kernels::conv1d
