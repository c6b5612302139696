#pragma once

#include <cstdint>

/// The launches of the sigmoids' kernels: on a cudaStream_t, returning the cudaError_t. S is float
/// or Bf16.
namespace stowage::kernels::sigmoids {

template <class S>
struct Forward {
  std::int64_t elements;
  const S* x;
  const S* gate;
  S* y;
};

template <class S>
struct Backward {
  std::int64_t elements;
  const S* dy;
  const S* x;
  const S* gate;
  S* dx;
  S* dgate;
};

/// Of sums: y = sigmoid(x), dx = dy y (1 - y).
int launch_sigmoid(std::int64_t elements, const float* x, float* y, void* stream);
int launch_sigmoid_backward(std::int64_t elements, const float* dy, const float* y, float* dx,
                            void* stream);

template <class S>
int launch(const Forward<S>& args, void* stream);
template <class S>
int launch(const Backward<S>& args, void* stream);

}  // namespace stowage::kernels::sigmoids
