#pragma once

#include <cstddef>
#include <cstdint>

/// The CUDA runtime's stream, declared here so that this header needs no CUDA.
typedef struct CUstream_st* cudaStream_t;

namespace stowage::kernels {

/// Sizes and layout of a causal depthwise convolution on the GPU; n tokens of all
/// documents lie one after another, matrices are bf16 with 16-byte aligned rows.
struct Conv1dCudaShape {
  std::int64_t tokens = 0;       ///< n
  int channels = 0;              ///< C, a multiple of 8
  int width = 4;                 ///< W: 2, 3 or 4
  std::int64_t x_stride = 0;     ///< elements between rows of x, a multiple of 8
  std::int64_t y_stride = 0;     ///< of y and dy
  std::int64_t dx_stride = 0;    ///< of dx
  bool bf16_parameters = false;  ///< w and b are bf16, else fp32
};

/// Device pointers of the forward.
struct Conv1dCudaForward {
  const void* x = nullptr;  ///< (n, C) bf16
  const void* w = nullptr;  ///< (C, W), the last tap meets the token itself
  const void* b = nullptr;  ///< (C)
  const int* seq_idx =
      nullptr;  ///< (n) int32, non-decreasing: taps stop where it changes; or nullptr
  const void* halo = nullptr;  ///< (3, C) bf16, the tokens before the first, or nullptr for none
  void* y = nullptr;           ///< (n, C) bf16
};

/// Device pointers of the backward.
struct Conv1dCudaBackward {
  const void* dy = nullptr;  ///< (n, C) bf16
  const void* x = nullptr;
  const void* w = nullptr;
  const void* b = nullptr;
  const int* seq_idx = nullptr;
  const void* halo = nullptr;
  void* dx = nullptr;         ///< (n, C) bf16
  void* dhalo = nullptr;      ///< (3, C) bf16, this rank's share of the halo's gradient, or nullptr
  float* dw = nullptr;        ///< (C, W) fp32
  float* db = nullptr;        ///< (C) fp32
  void* workspace = nullptr;  ///< conv1d_cuda_backward_workspace_bytes, 16-byte aligned
  bool accumulate = false;    ///< dw, db: add to what is there
};

/// Bytes of scratch of the backward; the contents need not survive or be cleared.
std::size_t conv1d_cuda_backward_workspace_bytes(const Conv1dCudaShape& shape);

/// y_t = silu(b + sum_k w_k x_{t-W+1+k}) over the taps inside token t's document.
///
/// Asynchronous on `stream`, capturable; never allocates or synchronises. fp32 sums. Throws Error
/// when the shape is not served or the launch fails.
void conv1d_cuda_forward(const Conv1dCudaShape& shape, const Conv1dCudaForward& args,
                         cudaStream_t stream);

/// dx, dw, db under the same conditions; the pre-activation is recomputed, every sum has a fixed
/// order and no atomics, so the same inputs give the same bits.
void conv1d_cuda_backward(const Conv1dCudaShape& shape, const Conv1dCudaBackward& args,
                          cudaStream_t stream);

}  // namespace stowage::kernels
