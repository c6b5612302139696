#pragma once

#include <cuda_fp16.h>

#include <cstdint>

namespace stowage::kernels::hopper {

/// Two fp32 rounded to nearest-even bf16 in one register: `low` in the lower half.
__device__ __forceinline__ std::uint32_t pack_bf16(float low, float high) {
  std::uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

/// The lower and the upper bf16 of a register as fp32.
__device__ __forceinline__ float unpack_low(std::uint32_t packed) {
  return __uint_as_float(packed << 16);
}

__device__ __forceinline__ float unpack_high(std::uint32_t packed) {
  return __uint_as_float(packed & 0xFFFF0000U);
}

/// The same for fp16.
__device__ __forceinline__ std::uint32_t pack_f16(float low, float high) {
  std::uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
__device__ __forceinline__ float2 unpack_f16(std::uint32_t packed) {
  return __half22float2(*reinterpret_cast<const __half2*>(&packed));
}

/// 2^x, about 2 ulp, subnormal results flushed to zero; 2^-inf = 0.
__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// log2(x), about 1 ulp outside [0.5, 2]; -inf at 0.
__device__ __forceinline__ float lg2(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace stowage::kernels::hopper
