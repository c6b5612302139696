#pragma once

#include <cstdint>

/// The CUDA runtime's stream, declared here so that this header needs no CUDA.
typedef struct CUstream_st* cudaStream_t;

namespace stowage::kernels {

/// Sizes of the grouped products of grouped_linear.hpp on the GPU; matrices are dense and
/// row-major, bf16 or, slowly, fp32.
struct GroupedCudaShape {
  std::int64_t rows = 0;     ///< routed rows that x and y have room for
  std::int64_t experts = 0;  ///< E, at most 512
  std::int64_t outputs = 0;  ///< M
  std::int64_t inputs = 0;   ///< K
  bool bf16 = true;          ///< storage; else fp32
};

/// y (rows, M) = x (rows, K) w (E, M, K)[e]^T; offsets (E + 1) int32 on the device.
///
/// Asynchronous on `stream`, capturable; never allocates or synchronises. fp32 sums in a fixed
/// order: the same inputs give the same bits. Tensor cores serve bf16 with extents that are
/// multiples of 8 at 16-byte aligned addresses; anything else takes a path without them. Throws
/// Error when the shape is not served or the launch fails.
void grouped_cuda_forward(const GroupedCudaShape& shape, const void* x, const void* w,
                          const std::int32_t* offsets, void* y, cudaStream_t stream);

/// dx (rows, K) = dy (rows, M) w[e], added to dx when `accumulate`, under the same conditions.
void grouped_cuda_backward_input(const GroupedCudaShape& shape, const void* dy, const void* w,
                                 const std::int32_t* offsets, void* dx, bool accumulate,
                                 cudaStream_t stream);

/// dw (E, M, K) fp32 = dy^T x over the rows of each expert, added to dw when `accumulate`, under
/// the same conditions. Without rows: zero when storing, untouched when accumulating.
void grouped_cuda_backward_weight(const GroupedCudaShape& shape, const void* dy, const void* x,
                                  const std::int32_t* offsets, float* dw, bool accumulate,
                                  cudaStream_t stream);

}  // namespace stowage::kernels
