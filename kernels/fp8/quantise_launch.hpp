#pragma once

#include <cstdint>
#include <optional>

#include "execution/dtype.hpp"
#include "kernels/activation/kind.hpp"

/// The launches of the quantisation's kernels: on a cudaStream_t, returning the cudaError_t. S is
/// float or Bf16; absent outputs are null.
namespace stowage::kernels::fp8 {

template <class S>
struct LargestArgs {
  std::int64_t rows, width;
  std::optional<Activation> activation;
  const S* x;
  float* amax;
};

template <class S>
struct JoinLargestArgs {
  std::int64_t rows, width, stride;
  const S* x;
  float* amax;
};

template <class S>
struct QuantiseArgs {
  std::int64_t rows, width;
  std::optional<Activation> activation;
  execution::Dtype dtype;
  const S* x;
  const float* amax;
  int parts;  ///< elements of amax
  std::uint8_t* payload;
  float* scale;
  std::uint8_t* transposed;
  float* transposed_scale;
};

struct TransposeArgs {
  std::int64_t rows, width;
  const std::uint8_t* payload;
  std::uint8_t* transposed;
};

template <class S>
int launch(const LargestArgs<S>& args, void* stream);
template <class S>
int launch(const JoinLargestArgs<S>& args, void* stream);
template <class S>
int launch(const QuantiseArgs<S>& args, void* stream);
int launch(const TransposeArgs& args, void* stream);

}  // namespace stowage::kernels::fp8
