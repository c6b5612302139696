#pragma once

#include "kernels/attention/attention_layout.hpp"

/// The CUDA runtime's stream, declared here so that this header needs no CUDA.
typedef struct CUstream_st* cudaStream_t;

namespace stowage::kernels {

/// Device pointers of the forward. What is not 16-byte aligned, or has rows, heads or sequences
/// that are no multiple of 16 bytes apart, takes the slow path.
struct AttentionForwardPointers {
  const void* q = nullptr;          ///< (tokens, H, P)
  const void* k = nullptr;          ///< (tokens, K, P)
  const void* v = nullptr;          ///< (tokens, K, P)
  void* o = nullptr;                ///< (tokens, H, P), softmax(scale q k^T + mask) v
  float* lse = nullptr;             ///< (H, tokens) fp32, natural log of the row's sum of exp
  const int* cu_seqlens = nullptr;  ///< (C + 1) int32, on the device, ascending, from 0; equal
                                    ///< neighbours are empty documents
  void* workspace = nullptr;        ///< attention_forward_cuda_workspace_bytes
};

/// Device pointers of the backward; the forward's inputs and results, and the gradients.
struct AttentionBackwardPointers {
  const void* d_o = nullptr;  ///< (tokens, H, P)
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  const void* o = nullptr;
  const float* lse = nullptr;
  const int* cu_seqlens = nullptr;
  void* dq = nullptr;         ///< (tokens, H, P)
  void* dk = nullptr;         ///< (tokens, K, P), summed over the group's heads; of the storage
                              ///< dtype or fp32, as AttentionLayout says, and so is dv
  void* dv = nullptr;         ///< (tokens, K, P)
  void* workspace = nullptr;  ///< attention_backward_cuda_workspace_bytes
};

/// O = softmax(scale Q K^T + mask) V for every document, and the rows' log-sum-exp.
///
/// Asynchronous on `stream`, capturable; never allocates, synchronises or reads device data on the
/// host. All rows must be finite: a tile's last rows may belong to the next document and are
/// multiplied by zero. The same inputs give the same bits.
/// Throws Error when the layout is not served or the launch fails.
void attention_forward_cuda(const AttentionLayout& layout, const AttentionForwardPointers& args,
                            cudaStream_t stream);

/// dQ, dK, dV for the upstream gradient d_o, under the same conditions; deterministic: every sum is
/// taken in a fixed order.
void attention_backward_cuda(const AttentionLayout& layout, const AttentionBackwardPointers& args,
                             cudaStream_t stream);

}  // namespace stowage::kernels
