#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "kernels/pack.cuh"

namespace stowage::kernels::device {

/// Reads and writes kSize elements at a time: a pack of 16 bytes, or one element where rows are not
/// made of whole packs.
template <class S, bool kPacked>
struct Access {
  static constexpr int kSize = kPacked ? kPackSize<S> : 1;
  /// The elements as they lie in memory; 16 bits of a Bf16 suffice for its copy.
  using Bits = std::conditional_t<kPacked, uint4, S>;

  __device__ __forceinline__ static Bits load(const S* from) {
    return *reinterpret_cast<const Bits*>(from);
  }
  __device__ __forceinline__ static void unpack(const Bits& bits, float (&values)[kSize]) {
    if constexpr (kPacked)
      device::unpack<S>(bits, values);
    else
      values[0] = to_float(bits);
  }
  __device__ __forceinline__ static void store(S* to, const Bits& bits) {
    *reinterpret_cast<Bits*>(to) = bits;
  }
  __device__ __forceinline__ static void store(S* to, const float (&values)[kSize]) {
    if constexpr (kPacked)
      *reinterpret_cast<uint4*>(to) = pack<S>(values);
    else
      *to = round_to<S>(values[0]);
  }
};

/// True if rows of these lengths (elements) from these addresses on, of which any may be null, are
/// whole packs that begin at multiples of 16 bytes.
template <class S>
bool whole_packs(std::initializer_list<std::int64_t> lengths,
                 std::initializer_list<const void*> addresses) {
  return std::all_of(lengths.begin(), lengths.end(),
                     [](std::int64_t length) { return length % kPackSize<S> == 0; }) &&
         std::all_of(addresses.begin(), addresses.end(), [](const void* address) {
           return reinterpret_cast<std::uintptr_t>(address) % sizeof(uint4) == 0;
         });
}

}  // namespace stowage::kernels::device
