#pragma once

#include <cstdint>

/// The CUDA runtime's stream, declared here so that this header needs no CUDA.
typedef struct CUstream_st* cudaStream_t;

namespace stowage::kernels {

/// Sizes and layout of a causal depthwise convolution on the GPU; n tokens of all documents lie one
/// after another, matrices have 16-byte aligned rows.
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
  const void* b = nullptr;  ///< (C), or none
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
  float* db = nullptr;        ///< (C) fp32, or none
  void* workspace = nullptr;  ///< conv1d::workspace_bytes, 16-byte aligned
  bool accumulate = false;    ///< dw, db: add to what is there
};

/// The launches of the convolution's kernels; each returns its cudaError_t. Capturable; every sum
/// is in fp32 and has a fixed order, so the same inputs give the same bits.
namespace conv1d {

/// The vector kernels: bf16 matrices.
int launch_forward(const Conv1dCudaShape& shape, const Conv1dCudaForward& args,
                   cudaStream_t stream);
int launch_backward(const Conv1dCudaShape& shape, const Conv1dCudaBackward& args,
                    cudaStream_t stream);

/// The simple kernels (conv1d_simple.cu): any shape and stride, all operands bf16 or, unless
/// shape.bf16_parameters, all fp32. Each strip has one partial sum a channel.
int launch_simple_forward(const Conv1dCudaShape& shape, const Conv1dCudaForward& args,
                          cudaStream_t stream);
int launch_simple_backward(const Conv1dCudaShape& shape, const Conv1dCudaBackward& args,
                           cudaStream_t stream);

/// dw, db = the partial sums (blocks, kSums, C) of the workspace, in order.
int launch_finish(const Conv1dCudaShape& shape, const Conv1dCudaBackward& args, std::int64_t blocks,
                  cudaStream_t stream);

}  // namespace conv1d
}  // namespace stowage::kernels
