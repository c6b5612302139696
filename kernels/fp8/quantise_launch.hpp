#pragma once

#include <cstdint>

#include "execution/dtype.hpp"

/// The launches of the quantisation's kernels: on a cudaStream_t, returning the cudaError_t. S is
/// float or Bf16; absent outputs are null.
namespace stowage::kernels::fp8 {

template <class S>
int launch_largest_magnitude(std::int64_t elements, const S* x, float* amax, void* stream);

template <class S>
struct QuantiseArgs {
  std::int64_t rows, width;
  execution::Dtype dtype;
  const S* x;
  const float* amax;
  std::uint8_t* payload;
  std::uint8_t* transposed;
  float* scale;
};

template <class S>
int launch_quantise(const QuantiseArgs<S>& args, void* stream);

}  // namespace stowage::kernels::fp8
