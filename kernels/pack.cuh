#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <type_traits>

#include "execution/dtype.hpp"
#include "kernels/hopper/convert.cuh"

/// 16 bytes of a storage type, the widest access of a thread, as fp32 values.
namespace stowage::kernels::device {

/// Elements of 16 bytes: 4 fp32 or 8 bf16.
template <class S>
inline constexpr int kPackSize = static_cast<int>(16 / sizeof(S));

template <class S>
__device__ __forceinline__ void unpack(const uint4& bits, float (&values)[kPackSize<S>]) {
  const std::uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (std::is_same_v<S, float>) {
      values[i] = __uint_as_float(words[i]);
    } else {
      values[2 * i] = hopper::unpack_low(words[i]);
      values[2 * i + 1] = hopper::unpack_high(words[i]);
    }
  }
}

/// Rounded to nearest even.
template <class S>
__device__ __forceinline__ uint4 pack(const float (&values)[kPackSize<S>]) {
  if constexpr (std::is_same_v<S, float>)
    return {__float_as_uint(values[0]), __float_as_uint(values[1]), __float_as_uint(values[2]),
            __float_as_uint(values[3])};
  else
    return {hopper::pack_bf16(values[0], values[1]), hopper::pack_bf16(values[2], values[3]),
            hopper::pack_bf16(values[4], values[5]), hopper::pack_bf16(values[6], values[7])};
}

/// One element, for what does not fill 16 bytes.
__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(execution::Bf16 value) {
  return __uint_as_float(static_cast<std::uint32_t>(value.bits) << 16);
}
template <class S>
__device__ __forceinline__ S round_to(float value) {
  if constexpr (std::is_same_v<S, float>) {
    return value;
  } else {
    S rounded;
    rounded.bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
    return rounded;
  }
}

}  // namespace stowage::kernels::device
