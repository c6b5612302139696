#pragma once

#include <cstdint>

/// How the embedding's kernels divide rows among warps.
namespace stowage::kernels::embedding {

inline constexpr int kThreads = 256;
inline constexpr int kWarpSize = 32;
inline constexpr int kWarps = kThreads / kWarpSize;

/// The part of a row that a warp copies or makes: kCount pieces of Piece::kSize elements of each
/// lane.
template <class Piece, int kCount>
struct Slice {
  static constexpr int kElements = kWarpSize * kCount * Piece::kSize;

  /// Where piece p of this lane begins.
  __device__ static int column(int slice, int p) {
    return slice * kElements +
           (p * kWarpSize + static_cast<int>(threadIdx.x) % kWarpSize) * Piece::kSize;
  }
  static int count_in(std::int64_t width) {
    return static_cast<int>((width + kElements - 1) / kElements);
  }
};

}  // namespace stowage::kernels::embedding
