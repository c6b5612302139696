#pragma once

#include <cstddef>
#include <cstdint>

/// The CUDA runtime's stream, declared here so that this header needs no CUDA.
typedef struct CUstream_st* cudaStream_t;

namespace stowage::kernels {

/// Sizes and layout of one attention call on the GPU; all matrices are bf16 with contiguous rows of
/// heads x head_dim columns, and may be columns of one fused (tokens, (H + 2K) P) projection.
struct AttentionLayout {
  std::int64_t tokens = 0;  ///< rows of q, k, v, o: all documents, one after another
  int heads = 0;            ///< H, query heads
  int kv_heads = 0;         ///< K, divides H; query head h reads kv head h / (H / K)
  int head_dim = 0;         ///< P: 64 and 128 are fast; other multiples of 8 up to 256 work
  bool causal = true;       ///< query i of a document sees its keys 0 .. i, else all its keys
  float scale = 0;          ///< multiplies q k^T, usually 1 / sqrt(P)
  int documents = 0;        ///< capacity: `cu_seqlens` has documents + 1 entries
  std::int64_t uniform_length = 0;  ///< > 0: every document has this length, `cu_seqlens` is unread
  std::int64_t q_stride = 0;        ///< elements between rows of q and dq; a multiple of 8, as are
  std::int64_t k_stride = 0;        ///< those of k and dk,
  std::int64_t v_stride = 0;        ///< v and dv,
  std::int64_t o_stride = 0;        ///< o and d_o
  /// Scratch that the backward may use to keep score gradients (2 bytes for every visible query-key
  /// pair of the heads taken at once) instead of computing them twice; used for equal lengths only.
  std::int64_t stored_limit_bytes = std::int64_t{4} << 30;
};

/// Device pointers of the forward; q, k, v, o are 16-byte aligned bf16.
struct AttentionForwardPointers {
  const void* q = nullptr;          ///< (tokens, H, P)
  const void* k = nullptr;          ///< (tokens, K, P)
  const void* v = nullptr;          ///< (tokens, K, P)
  void* o = nullptr;                ///< (tokens, H, P), softmax(scale q k^T + mask) v
  float* lse = nullptr;             ///< (H, tokens) fp32, natural log of the row's sum of exp
  const int* cu_seqlens = nullptr;  ///< (documents + 1) int32, on the device, ascending, from 0;
                                    ///< equal neighbours are empty documents
  void* workspace = nullptr;        ///< attention_forward_cuda_workspace_bytes, 256-byte aligned
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
  void* dq = nullptr;         ///< (tokens, H, P), strides of q
  void* dk = nullptr;         ///< (tokens, K, P), strides of k, summed over the group's heads
  void* dv = nullptr;         ///< (tokens, K, P), strides of v
  void* workspace = nullptr;  ///< attention_backward_cuda_workspace_bytes, 256-byte aligned
};

/// Bytes of scratch; the contents need not survive or be cleared.
std::size_t attention_forward_cuda_workspace_bytes(const AttentionLayout& shape);
std::size_t attention_backward_cuda_workspace_bytes(const AttentionLayout& shape);

/// O = softmax(scale Q K^T + mask) V for every document, and the rows' log-sum-exp.
///
/// Asynchronous on `stream`, capturable; never allocates, synchronises or reads device data on the
/// host. Rows of no document are not written. All rows must be finite: a tile's last rows may
/// belong to the next document and are multiplied by zero. The same inputs give the same bits.
/// Throws Error when the shape is not served or the launch fails.
void attention_forward_cuda(const AttentionLayout& shape, const AttentionForwardPointers& args,
                            cudaStream_t stream);

/// dQ, dK, dV for the upstream gradient d_o, under the same conditions; deterministic: every sum is
/// taken in a fixed order, without floating-point atomics.
void attention_backward_cuda(const AttentionLayout& shape, const AttentionBackwardPointers& args,
                             cudaStream_t stream);

}  // namespace stowage::kernels
