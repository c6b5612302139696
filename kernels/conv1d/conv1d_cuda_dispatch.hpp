#pragma once

#include "kernels/conv1d/conv1d.hpp"

/// The convolution's device forms behind its queue form: the vector kernels (conv1d_cuda.hpp) for
/// bf16 with rows that they can load by 8 channels, the simple ones for all else.
namespace stowage::kernels::detail {

/// The operands of a backward in device memory; dy is dense.
template <class S>
struct Conv1dBackward {
  Matrix<const S> x;
  const S* dy = nullptr;
  const S* w = nullptr;
  const S* b = nullptr;
  const std::int32_t* seq_idx = nullptr;
  Matrix<S> dx;
  float* dw = nullptr;
  float* db = nullptr;
  void* workspace = nullptr;
  bool accumulate = false;
  const S* halo = nullptr;
  S* dhalo = nullptr;
  int width = 0;  ///< taps of w and dw
};

/// Asynchronous on `stream`, a cudaStream_t; capturable. S is float or Bf16. Returns the
/// cudaError_t of the launches.
template <class S>
int conv1d_forward_cuda(Matrix<const S> x, const S* w, const S* b, const std::int32_t* seq_idx,
                        S* y, const S* halo, int width, void* stream);
template <class S>
int conv1d_backward_cuda(const Conv1dBackward<S>& args, void* stream);

}  // namespace stowage::kernels::detail
