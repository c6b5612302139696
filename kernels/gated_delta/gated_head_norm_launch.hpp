#pragma once

#include <cstdint>

namespace stowage::kernels::gated_delta {

/// Forward and backward of the gated norm of heads, on a cudaStream_t; S is float or Bf16.
template <class S>
struct HeadNorm {
  std::int64_t tokens;
  int heads, head_dim;
  const S* y;
  const S* z;
  std::int64_t z_stride;
  const S* w;
  float eps;
  S* out = nullptr;  ///< of the forward alone; what follows, of the backward
  const S* dout = nullptr;
  S* dy = nullptr;
  S* dz = nullptr;
  std::int64_t dz_stride = 0;
  float* dw = nullptr;
  float* partials = nullptr;  ///< (norm::kPartials, P)
  bool accumulate = false;
};

template <class S>
int launch_head_norm(const HeadNorm<S>& args, void* stream);

}  // namespace stowage::kernels::gated_delta
