#pragma once

#include <cstdint>

#include "kernels/hopper/wgmma.cuh"

/// What the tensor-core kernels of attention repeat: products on tiles in shared memory, which are
/// panels of 64 columns, each of rows of 128 bytes in the 128-byte swizzle; and the mask.
namespace stowage::kernels::attention {

/// out (64 x kColumns) = a b^T over kHeadDim columns, for 64 of the kRowsA rows of a tile and the
/// first kColumns of kRowsB rows of another; issued, not waited for.
template <int kHeadDim, int kRowsA, int kRowsB, int kColumns = kRowsB>
__device__ __forceinline__ void issue_scores(float (&out)[kColumns / 2], const unsigned char* a,
                                             const unsigned char* b) {
  const std::uint64_t at_a = hopper::k_major<hopper::Swizzle::b128>(a);
  const std::uint64_t at_b = hopper::k_major<hopper::Swizzle::b128>(b);
#pragma unroll
  for (int i = 0; i < kHeadDim / 16; ++i) {
    const int within = i % 4 * 32;
    hopper::Wgmma<kColumns>::template ss<0, 0>(
        out, hopper::advance(at_a, i / 4 * kRowsA * 128 + within),
        hopper::advance(at_b, i / 4 * kRowsB * 128 + within), i > 0);
  }
}

/// The same for 64 rows that lie in registers as load_rows leaves them.
template <int kHeadDim, int kColumns>
__device__ __forceinline__ void issue_scores(float (&out)[kColumns / 2],
                                             std::uint32_t (&a)[kHeadDim / 4],
                                             const unsigned char* b) {
  static_assert(kHeadDim == 64, "one panel of columns");
  const std::uint64_t at_b = hopper::k_major<hopper::Swizzle::b128>(b);
#pragma unroll
  for (int i = 0; i < kHeadDim / 16; ++i) {
    hopper::Wgmma<kColumns>::template rs<0>(out, a[4 * i], a[4 * i + 1], a[4 * i + 2], a[4 * i + 3],
                                            hopper::advance(at_b, i * 32), i > 0);
  }
}

/// out (64 x kHeadDim) += weights (64 x kRows, in registers as bf16) times the rows of a tile;
/// issued, not waited for.
template <int kHeadDim, int kRows>
__device__ __forceinline__ void issue_weighted_rows(float (&out)[kHeadDim / 2],
                                                    std::uint32_t (&weights)[kRows / 4],
                                                    const unsigned char* rows) {
  const std::uint64_t at = hopper::mn_major<hopper::Swizzle::b128>(rows, kRows * 128);
#pragma unroll
  for (int i = 0; i < kRows / 16; ++i) {
    hopper::Wgmma<kHeadDim>::template rs<1>(out, weights[4 * i], weights[4 * i + 1],
                                            weights[4 * i + 2], weights[4 * i + 3],
                                            hopper::advance(at, i * 16 * 128), 1);
  }
}

/// Sets the scores (queries x kKeys) of keys that a query may not see to -inf. `row` is the
/// thread's first query in the document, `key` its first key.
template <int kKeys, bool kCausal>
__device__ __forceinline__ void mask_keys(float (&s)[kKeys / 2], int row, int key, int length) {
  const int limit0 = kCausal ? row - key : length - 1 - key;
  const int limit1 = kCausal ? limit0 + 8 : limit0;
#pragma unroll
  for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      if (8 * j + c > limit0) s[4 * j + c] = -INFINITY;
      if (8 * j + c > limit1) s[4 * j + 2 + c] = -INFINITY;
    }
  }
}

}  // namespace stowage::kernels::attention
