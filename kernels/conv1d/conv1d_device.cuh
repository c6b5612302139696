#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/conv1d/conv1d_layout.hpp"
#include "kernels/hopper/convert.cuh"

/// What the forward and the backward convolution share on the device.
namespace stowage::kernels::conv1d {

using namespace hopper;

inline constexpr int kTaps = 4;
inline constexpr int kThreads = 32 * kWarps;
inline constexpr float kLog2E = 1.4426950408889634F;

/// kPairs pairs of bf16 of one row, moved as one access of 4 kPairs bytes.
template <int kPairs>
struct alignas(4 * kPairs) Packed {
  std::uint32_t pair[kPairs];
};

template <int kPairs>
__device__ __forceinline__ void unpack(float (&to)[2 * kPairs], const Packed<kPairs>& from) {
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    to[2 * i] = unpack_low(from.pair[i]);
    to[2 * i + 1] = unpack_high(from.pair[i]);
  }
}

template <int kPairs>
__device__ __forceinline__ Packed<kPairs> pack(const float (&from)[2 * kPairs]) {
  Packed<kPairs> to;
#pragma unroll
  for (int i = 0; i < kPairs; ++i) to.pair[i] = pack_bf16(from[2 * i], from[2 * i + 1]);
  return to;
}

/// Writes a result that nobody reads soon.
__device__ __forceinline__ void put(__nv_bfloat16* to, const Packed<2>& values) {
  __stcs(reinterpret_cast<uint2*>(to), make_uint2(values.pair[0], values.pair[1]));
}

__device__ __forceinline__ float parameter(const void* values, std::int64_t i, bool bf16) {
  return bf16 ? __bfloat162float(static_cast<const __nv_bfloat16*>(values)[i])
              : static_cast<const float*>(values)[i];
}

/// 1 / (1 + e^-x), about 2 ulp, with exact limits at both ends.
__device__ __forceinline__ float sigmoid(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(1.0F + ex2(-kLog2E * x)));
  return y;
}

/// The derivative of u sigmoid(u).
__device__ __forceinline__ float silu_gradient(float u) {
  const float s = sigmoid(u);
  return s + s * (u - u * s);
}

/// Taps that this convolution has fewer than kTaps: its first weights are zero. Kernels of the full
/// width (kNarrow false) know it when they are compiled, and have no code for it.
template <bool kNarrow>
__device__ __forceinline__ int missing_taps(int width) {
  return kNarrow ? kTaps - width : 0;
}

/// One channel group's weights and biases.
template <int kChannels>
struct Weights {
  float w[kTaps][kChannels];
  float b[kChannels];

  __device__ __forceinline__ Weights(const void* weights, const void* bias, int channel, bool bf16,
                                     int missing) {
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
#pragma unroll
      for (int k = 0; k < kTaps; ++k) {
        const std::int64_t row = static_cast<std::int64_t>(channel + c) * (kTaps - missing);
        w[k][c] = k < missing ? 0 : parameter(weights, row + k - missing, bf16);
      }
      b[c] = bias == nullptr ? 0 : parameter(bias, channel + c, bf16);
    }
  }
};

inline constexpr int kPairs = 2;
inline constexpr int kChannels = 2 * kPairs;  ///< of a lane

using Past = float[3][kChannels];  ///< rows t - 3, t - 2, t - 1

/// Zeroes the first `rows` rows of a window.
__device__ __forceinline__ void clear(Past& past, int rows) {
#pragma unroll
  for (int k = 0; k < 3; ++k) {
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      if (k < rows) past[k][c] = 0;
    }
  }
}

/// One row: its output; the window moves on.
__device__ __forceinline__ Packed<kPairs> convolve(const Weights<kChannels>& weights, Past& past,
                                                   const Packed<kPairs>& row) {
  float current[kChannels], out[kChannels];
  unpack<kPairs>(current, row);
#pragma unroll
  for (int c = 0; c < kChannels; ++c) {
    float sum = weights.b[c] + weights.w[0][c] * past[0][c];
    sum += weights.w[1][c] * past[1][c];
    sum += weights.w[2][c] * past[2][c];
    sum += weights.w[3][c] * current[c];
    out[c] = sum * sigmoid(sum);
    past[0][c] = past[1][c];
    past[1][c] = past[2][c];
    past[2][c] = current[c];
  }
  return pack<kPairs>(out);
}

/// Which rows of a strip begin a document, as bits: row `first` - 3 + i at bit i, 96 of them. The
/// first token begins one unless a halo comes before it.
struct Begins {
  static_assert(kStrip + 6 <= 96);
  std::uint32_t word[3];

  __device__ __forceinline__ Begins(const int* seq_idx, std::int64_t first, std::int64_t tokens,
                                    bool halo) {
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      const std::int64_t t = first - 3 + 32 * i + lane;
      bool begins = t == 0 && !halo;
      if (seq_idx != nullptr && t > 0 && t < tokens) begins = seq_idx[t] != seq_idx[t - 1];
      word[i] = __ballot_sync(0xFFFFFFFFU, begins);
    }
  }
  /// The bits of rows first - 3 + i and later.
  __device__ __forceinline__ std::uint32_t from(int i) const {
    const std::uint32_t low = i < 32 ? word[0] : i < 64 ? word[1] : word[2];
    const std::uint32_t high = i < 32 ? word[1] : i < 64 ? word[2] : 0;
    return __funnelshift_r(low, high, i % 32);
  }
};

/// Rows of a matrix around a strip. Rows before the first token come from the halo or are zero,
/// rows after the last are zero; kInner promises that there are none of either.
template <int kPairs, bool kInner>
struct Rows {
  const __nv_bfloat16* first;  ///< row `start`
  std::int64_t stride;
  const __nv_bfloat16* halo;  ///< row -3, or nullptr
  int channels, start, tokens;

  __device__ __forceinline__ Packed<kPairs> load(int i) const {
    const auto at = [](const __nv_bfloat16* p) {
      return *reinterpret_cast<const Packed<kPairs>*>(p);
    };
    if constexpr (kInner) return at(first + i * stride);
    const int t = start + i;
    if (t >= 0 && t < tokens) return at(first + i * stride);
    if (t < 0 && halo != nullptr) return at(halo + (t + 3) * channels);
    return {};
  }
};

}  // namespace stowage::kernels::conv1d
