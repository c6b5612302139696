#pragma once

#include "execution/dtype.hpp"
#include "kernels/gated_delta/gated_delta_arrays.hpp"

/// The chunked form on Hopper's warp-group products: bf16 storage, heads of 128.
namespace stowage::kernels::gated_delta {

constexpr int kWide = 128;  // columns of a head
constexpr int kPart = 64;   // columns of V that a warpgroup takes

/// What prepare leaves of a token, by chunk and head.
enum Factor {
  kStrength,  // beta
  kCorrects,  // beta a |k|^-1: of S k
  kReads,     // a / |q|: of S q
  kWrites,    // c / |k|: of U k^T
  kThrough,   // b, at each token; the walks take those up to here
  kSums,      // of logarithms of decays up to the token
  kLogs,      // log of its decay
  kSlopes,    // its derivative by a
  kQueryNorm,
  kKeyNorm,
  kFactors
};

/// The operands, and what the kernels leave to each other, by chunk and head. What is bf16 lies as
/// wgmma takes it: tiles of 64 rows of 64 columns, 128-byte swizzled, those of a row one after the
/// other.
struct Chunked {
  Arrays<execution::Bf16, float> arrays;
  float* factors = nullptr;            ///< (kFactors, 64)
  execution::Bf16* inverse = nullptr;  ///< (64, 64) T^T
  execution::Bf16* scores = nullptr;   ///< (64, 64) M
  execution::Bf16* states = nullptr;   ///< (P, N) S before the chunk
  execution::Bf16* dstates = nullptr;  ///< (P, N) gradient of S behind the chunk
  execution::Bf16* u = nullptr;        ///< (64, P) U
  execution::Bf16* w = nullptr;        ///< (64, P) T^T dU

  /// As Arrays::place.
  std::size_t place(void* workspace, bool whole) {
    WorkspaceParts parts(workspace);
    const std::int64_t all = arrays.at(arrays.chunks(), 0);
    parts.take(factors, all * kFactors * kC);
    parts.take(inverse, all * kC * kC);
    parts.take(scores, all * kC * kC);
    if (!whole) return parts.bytes();
    parts.take(arrays.partials, 2 * all);
    parts.take(states, all * kWide * kWide);
    parts.take(dstates, all * kWide * kWide);
    parts.take(u, all * kC * kWide);
    parts.take(w, all * kC * kWide);
    return parts.bytes();
  }
  STOWAGE_PORTABLE float* factors_of(int chunk, int head) const {
    return factors + arrays.at(chunk, head) * kFactors * kC;
  }
};

/// As those of gated_delta_launch.hpp.
int launch_forward(const Chunked& chunked, void* stream);
int launch_backward(const Chunked& chunked, void* stream);
int launch_segment(const Chunked& chunked, void* stream);

/// Their steps. Gates, norms, T and M:
int launch_prepare(const Chunked& chunked, void* stream);
/// The walks over chunks: forward of columns [64 first, 64 (first + count)) of V, behind those of V
/// of the identity's rows; with dy back as well.
int launch_walks(const Chunked& chunked, int first, int count, void* stream);
/// Of q, k, b and a.
int launch_gradients(const Chunked& chunked, void* stream);

}  // namespace stowage::kernels::gated_delta
