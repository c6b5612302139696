#pragma once

#include <cstdint>

namespace stowage::kernels::cross_entropy {

/// Device pointers of both operators of sharded_cross_entropy.hpp; S is float or Bf16.
template <class S>
struct PartOperands {
  std::int64_t rows, vocabulary, width, first;
  const S* h;
  const S* w;
  const std::int32_t* targets;
  float* logits;
  float* stats;
  int ranks = 1;
  float* losses = nullptr;
  const float* scale = nullptr;  ///< null: the losses alone
  S* dh = nullptr;
  float* dw = nullptr;
  bool accumulate = false;
  float* hits = nullptr;
};

/// On a cudaStream_t; asynchronous, capturable. @throws Error if a product or a launch fails
template <class S>
void enqueue_logits(const PartOperands<S>& operands, void* stream);
template <class S>
void enqueue_gradients(const PartOperands<S>& operands, void* stream);

}  // namespace stowage::kernels::cross_entropy
