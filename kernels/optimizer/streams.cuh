#pragma once

#include "execution/dtype.hpp"
#include "kernels/hopper/convert.cuh"

/// Four neighbouring elements of a storage type as fp32 values, by accesses that pass L2 by: for
/// what is read or written once.
namespace stowage::kernels::device {

__device__ __forceinline__ float4 load4(const float* at) {
  return __ldcs(reinterpret_cast<const float4*>(at));
}
__device__ __forceinline__ float4 load4(const execution::Bf16* at) {
  const uint2 bits = __ldcs(reinterpret_cast<const uint2*>(at));
  return {hopper::unpack_low(bits.x), hopper::unpack_high(bits.x), hopper::unpack_low(bits.y),
          hopper::unpack_high(bits.y)};
}
__device__ __forceinline__ void store4(float* at, const float4& value) {
  __stcs(reinterpret_cast<float4*>(at), value);
}
__device__ __forceinline__ void store4(execution::Bf16* at, const float4& value) {
  const uint2 bits = {hopper::pack_bf16(value.x, value.y), hopper::pack_bf16(value.z, value.w)};
  __stcs(reinterpret_cast<uint2*>(at), bits);
}

}  // namespace stowage::kernels::device
