#pragma once

#include <cstddef>

#include "kernels/activation/activation.hpp"
#include "kernels/grouped_mlp/grouped_linear_cuda.hpp"

namespace stowage::kernels {

/// h (rows, H) = x (rows, K) w (E, H, K)[e]^T and a (rows, F) = row_weight * act(h); shape.outputs
/// is H, shape.inputs K. row_weight (rows) fp32 or null: 1. Conditions of grouped_cuda_forward.
void grouped_cuda_fc1_forward(const GroupedCudaShape& shape, Activation kind, const void* x,
                              const void* w, const std::int32_t* offsets, const float* row_weight,
                              void* h, void* a, cudaStream_t stream);

/// Device pointers of the gradient through fc2 and the activation.
struct GroupedCudaFc2 {
  const void* dy = nullptr;  ///< (rows, M)
  const void* w = nullptr;   ///< (E, M, F)
  const std::int32_t* offsets = nullptr;
  const float* row_weight = nullptr;  ///< (rows), or null: 1
  const void* h = nullptr;            ///< (rows, H)
  void* dh = nullptr;                 ///< (rows, H)
  void* a = nullptr;                  ///< (rows, F)
  float* drow_weight = nullptr;       ///< (rows), or null
  void* workspace = nullptr;  ///< grouped_cuda_fc2_workspace_bytes, if there is a drow_weight
};

/// dh, a and drow_weight as grouped_fc2_backward_input makes them; shape.outputs is M, shape.inputs
/// F. Conditions of grouped_cuda_backward_input.
void grouped_cuda_fc2_backward_input(const GroupedCudaShape& shape, Activation kind,
                                     const GroupedCudaFc2& args, cudaStream_t stream);

}  // namespace stowage::kernels
