#pragma once

#include <cstdint>
#include <span>

#include "kernels/optimizer/adamw.hpp"

/// The launch of adamw's kernel on device memory, behind the checks of adamw.cpp.
namespace stowage::kernels::optimizer {

/// What all tensors share; addresses in device memory.
struct AdamwInputs {
  const float* schedule;
  const std::int64_t* step;
  const float* norm;
  const std::int32_t* step_ok;
  double clip;
  AdamwOptions options;
};

/// `stream` is a cudaStream_t, the result a cudaError_t; S is float or Bf16.
template <class S>
int launch_adamw(std::span<const AdamwPointers<S>> tensors, const AdamwInputs& inputs,
                 void* stream);

}  // namespace stowage::kernels::optimizer
