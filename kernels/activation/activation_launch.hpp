#pragma once

#include <cstdint>

#include "kernels/activation/activation.hpp"

/// The launches of the activations' kernels: on a cudaStream_t, returning the cudaError_t. S is
/// float or Bf16; row weights are fp32; absent operands are null.
namespace stowage::kernels::activation {

template <class S>
struct Forward {
  Activation kind;
  std::int64_t rows, columns;  ///< of y
  const S* x;
  const float* row_weight;
  S* y;
  const std::int32_t* valid_rows;
};

template <class S>
struct Backward {
  Activation kind;
  std::int64_t rows, columns;  ///< of dy
  const S* dy;
  const S* x;
  const float* row_weight;
  S* dx;
  float* drow_weight;
  const std::int32_t* valid_rows;
  float* amax;
};

template <class S>
int launch(const Forward<S>& args, void* stream);
template <class S>
int launch(const Backward<S>& args, void* stream);

}  // namespace stowage::kernels::activation
