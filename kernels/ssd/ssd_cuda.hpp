#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/ssd/ssd.hpp"

/// The CUDA runtime's stream, declared here so that this header needs no CUDA.
typedef struct CUstream_st* cudaStream_t;

namespace stowage::kernels {

/// Sizes and layout of one state-space scan on the GPU.
///
/// n tokens of all documents lie one after another. X, B and C are columns of one bf16 matrix
/// `xbc` (n, H P + 2 G N): X first, then B, then C. Head h uses group h / (H / G).
struct SsdCudaShape {
  std::int64_t tokens = 0;  ///< n
  int heads = 0;            ///< H, a multiple of groups
  int head_dim = 0;         ///< P, as of ssd::is_served
  int groups = 0;           ///< G
  int state = 0;            ///< N, 64 or 128
  float dt_min = 0;         ///< step sizes are clamped to [dt_min, dt_max] after softplus
  float dt_max = 3.402823466e38F;
  int segments = 0;  ///< stretches of the sequence at once; 0: from the shape. Part of the
                     ///< order of sums, so of the bits
  bool bf16_parameters = false;  ///< a_log, d, dt_bias are bf16, else fp32
  std::int64_t xbc_stride = 0;   ///< elements between rows of xbc, a multiple of 8
  std::int64_t dt_stride = 0;    ///< of dt_raw
  std::int64_t y_stride = 0;     ///< of y and dy, a multiple of 8
  std::int64_t dxbc_stride = 0;  ///< of dxbc, a multiple of 8
  std::int64_t ddt_stride = 0;   ///< of ddt_raw
};

/// Device pointers of what both directions read; matrices are 16-byte aligned bf16.
struct SsdCudaInputs {
  const void* xbc = nullptr;             ///< (n, H P + 2 G N) bf16
  const void* dt_raw = nullptr;          ///< (n, H) bf16, before bias and softplus
  const void* a_log = nullptr;           ///< (H), A = -exp(a_log)
  const void* d = nullptr;               ///< (H), the skip
  const void* dt_bias = nullptr;         ///< (H)
  const int* seq_idx = nullptr;          ///< (n) int32, non-decreasing: the state is zero where it
                                         ///< changes; nullptr: one document
  const float* initial_state = nullptr;  ///< (H, P, N) fp32 before token 0, or nullptr for zero
};

template <class S>
SsdCudaInputs cuda_inputs(const SsdInputs<Pointers<S>>& inputs) {
  return {.xbc = inputs.xbc.data,
          .dt_raw = inputs.dt.data,
          .a_log = inputs.a_log,
          .d = inputs.d,
          .dt_bias = inputs.dt_bias,
          .seq_idx = inputs.seq_idx,
          .initial_state = inputs.initial_state};
}

/// Those of the forward.
struct SsdCudaForward : SsdCudaInputs {
  void* y = nullptr;             ///< (n, H P) bf16
  float* final_state = nullptr;  ///< (H, P, N) fp32 after token n - 1, or nullptr
  float* total_decay = nullptr;  ///< (H) fp32: d final_state / d initial_state; or nullptr
  void* workspace = nullptr;     ///< ssd_cuda_forward_workspace_bytes, 1024-byte aligned
};

/// Those of the backward: the upstream gradients, the results.
struct SsdCudaBackward : SsdCudaInputs {
  const void* dy = nullptr;             ///< (n, H P) bf16
  const float* dfinal_state = nullptr;  ///< (H, P, N) fp32, gradient of final_state; or nullptr
  void* dxbc = nullptr;                 ///< (n, H P + 2 G N) bf16: dX, dB, dC
  void* ddt_raw = nullptr;              ///< (n, H) bf16
  float* da_log = nullptr;              ///< (H) fp32
  float* dd = nullptr;                  ///< (H) fp32
  float* ddt_bias = nullptr;            ///< (H) fp32
  float* dinitial_state = nullptr;      ///< (H, P, N) fp32, or nullptr
  void* workspace = nullptr;            ///< ssd_cuda_backward_workspace_bytes, 1024-byte aligned
  bool accumulate = false;              ///< da_log, dd, ddt_bias: add to what is there
};

/// Bytes of scratch; the contents need not survive or be cleared.
std::size_t ssd_cuda_forward_workspace_bytes(const SsdCudaShape& shape);
std::size_t ssd_cuda_backward_workspace_bytes(const SsdCudaShape& shape);

/// y_t = C_t h_t + D X_t with h_t = exp(dt_t A) h_{t-1} + dt_t B_t X_t^T and dt =
/// clamp(softplus(dt_raw + dt_bias)): the state-space duality scan of Mamba-2 (arXiv 2405.21060).
///
/// Asynchronous on `stream`, capturable; never allocates, synchronises or reads device data on the
/// host. State, decay and sums in fp32, operands of products in bf16. The same inputs give the same
/// bits. Throws Error when the shape is not served or a launch fails.
void ssd_cuda_forward(const SsdCudaShape& shape, const SsdCudaForward& args, cudaStream_t stream);

/// The gradients of all inputs, under the same conditions; no floating-point atomics. The states
/// are recomputed, nothing but the forward's inputs is needed.
void ssd_cuda_backward(const SsdCudaShape& shape, const SsdCudaBackward& args, cudaStream_t stream);

}  // namespace stowage::kernels
