#pragma once

#include <cstdint>

namespace stowage::kernels::cross_entropy {

/// Device pointers of linear_cross_entropy; dense matrices, S is float or Bf16.
template <class S>
struct Operands {
  std::int64_t tokens, vocabulary, width;
  const S* h;
  const S* w;
  const std::int32_t* targets;
  const float* scale;  ///< null: the losses alone
  float* losses;
  S* dh;
  float* dw;
  float* logits;  ///< (cross_entropy_device_chunk rows, V)
  bool accumulate;
  float* hits = nullptr;  ///< as softmax_launch.hpp has them
};

/// Enqueues all chunks on a cudaStream_t; asynchronous, capturable.
/// @throws Error if a product or a launch fails
template <class S>
void enqueue(const Operands<S>& operands, void* stream);

}  // namespace stowage::kernels::cross_entropy
