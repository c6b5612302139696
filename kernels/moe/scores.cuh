#pragma once

#include <cuda_runtime.h>

#include <climits>
#include <cstdint>

#include "kernels/hopper/warp.cuh"
#include "kernels/moe/router.hpp"

/// One token's scores in a warp: element j of lane l belongs to expert 32 j + l. The device form of
/// scores.hpp.
namespace stowage::kernels::moe {

inline constexpr int kTokenWarps = 8;  ///< of a block, a token each

/// Row of logits; -infinity beyond the last expert, so that maxima and exponentials pass over it.
template <int kPer>
__device__ __forceinline__ void load_logits(const float* row, int experts, int lane,
                                            float (&logits)[kPer]) {
#pragma unroll
  for (int j = 0; j < kPer; ++j) {
    const int e = 32 * j + lane;
    logits[j] = e < experts ? row[e] : -INFINITY;
  }
}

template <int kPer>
__device__ __forceinline__ float row_sum(const float (&values)[kPer]) {
  float sum = 0;
#pragma unroll
  for (const float value : values) sum += value;
  return hopper::lanes_sum<32>(sum);
}

template <int kPer>
__device__ __forceinline__ float logsumexp(const float (&logits)[kPer]) {
  float top = -INFINITY;
#pragma unroll
  for (const float logit : logits) top = fmaxf(top, logit);
  top = hopper::lanes_max<32>(top);
  float terms[kPer];
#pragma unroll
  for (int j = 0; j < kPer; ++j) terms[j] = expf(logits[j] - top);
  return top + logf(row_sum(terms));
}

/// Score of one logit; `lse` is used by the softmax alone. 0 for -infinity.
__device__ __forceinline__ float score(bool sigmoid, float logit, float lse) {
  return sigmoid ? 1.0F / (1.0F + expf(-logit)) : expf(logit - lse);
}

/// A value that is out of the running.
template <class T>
inline constexpr T kOut = T{0};
template <>
inline constexpr float kOut<float> = -INFINITY;

/// An integer that orders as the value does; the sum turns -0 into 0.
__device__ __forceinline__ std::uint32_t ordered(std::uint32_t value) { return value; }
__device__ __forceinline__ std::uint32_t ordered(float value) {
  const std::uint32_t bits = __float_as_uint(value + 0.0F);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

/// The largest value's index, the lowest of equals; a NaN is never larger. T: float or
/// std::uint32_t.
template <class T, int kPer>
__device__ __forceinline__ int argmax(const T (&values)[kPer], int lane) {
  T best = kOut<T>;
  int at = lane;
#pragma unroll
  for (int j = 0; j < kPer; ++j) {
    if (values[j] > best) {
      best = values[j];
      at = 32 * j + lane;
    }
  }
  const std::uint32_t key = ordered(best), top = __reduce_max_sync(0xffffffffU, key);
  return static_cast<int>(
      __reduce_min_sync(0xffffffffU, key == top ? static_cast<unsigned>(at) : UINT_MAX));
}

/// values[index] = value, for an index that the whole warp has.
template <class T, int kPer>
__device__ __forceinline__ void set(T (&values)[kPer], int index, int lane, T value) {
#pragma unroll
  for (int j = 0; j < kPer; ++j)
    if (index == 32 * j + lane) values[j] = value;
}

/// What keeps a token's normalisation finite; as scores.hpp.
inline constexpr float kDeviceScoreFloor = 1e-20F;

/// Calls f.operator()<kPer>() with the registers that E experts need, a power of two.
template <class F>
int with_experts(int experts, F&& f) {
  if (experts <= 32) return f.template operator()<1>();
  if (experts <= 64) return f.template operator()<2>();
  if (experts <= 128) return f.template operator()<4>();
  if (experts <= 256) return f.template operator()<8>();
  if (experts <= 512) return f.template operator()<16>();
  if (experts <= RouterOptions::kMostExperts) return f.template operator()<32>();
  return cudaErrorInvalidValue;
}

/// Blocks of kTokenWarps tokens.
inline unsigned token_blocks(std::int64_t tokens) {
  return static_cast<unsigned>((tokens + kTokenWarps - 1) / kTokenWarps);
}

}  // namespace stowage::kernels::moe
