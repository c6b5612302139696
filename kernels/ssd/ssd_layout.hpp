#pragma once

#include <cstddef>
#include <cstdint>

#include "execution/dtype.hpp"
#include "kernels/ssd/ssd_cuda.hpp"

/// How the scan's kernels cut a sequence and share out their scratch; host code, so that plans need
/// no GPU.
namespace stowage::kernels {

namespace detail {

/// What the tensor-core kernels know of a scan: rows of bf16 without gaps.
SsdCudaShape cuda_shape(const SsdShape& shape, std::int64_t tokens);

/// Device workspace of a storage dtype; 0 for fp64, which runs on the host only.
std::size_t ssd_cuda_forward_bytes(const SsdShape& shape, std::int64_t tokens,
                                   execution::Dtype storage);
std::size_t ssd_cuda_backward_bytes(const SsdShape& shape, std::int64_t tokens,
                                    execution::Dtype storage);

}  // namespace detail

namespace ssd {

inline constexpr int kChunk = 64;  ///< Q, tokens of a chunk: one wgmma tile, and see ssd_scan.cu
inline constexpr int kPart = 64;   ///< columns of X that one unit owns
inline constexpr int kStrip = 16;  ///< columns of a unit that one warp owns: those of one head
inline constexpr int kStrips = kPart / kStrip;
/// Columns of the heads that units cut: strips 0 to 4 are head 0's, 5 to 9 head 1's, of a group,
/// and a unit has strips of one head or of two.
inline constexpr int kCutColumns = 80;
inline constexpr int kCutState = 128;   ///< N of such heads
inline constexpr int kScanUnits = 4;    ///< units of a block of the scan
inline constexpr int kStatesUnits = 2;  ///< units of a block of the state pass
inline constexpr int kWarpRows = 16;    ///< rows of a result that a warp sends at once

inline constexpr int kMultiprocessors = 132;  ///< H100, H200; fixed, as the bits depend on it

/// A state times this is lost beside any later token's share.
inline constexpr int kForgottenDigits = 40;
inline constexpr float kForgotten = 1.0F / static_cast<float>(1LL << kForgottenDigits);

/// Per chunk and head, made by the prepare kernel: six rows of 64 floats, by token of the chunk, of
/// which the forward makes and reads the first four.
/// With a the inclusive sum of dt A log2(e) within the chunk, and 2^-inf = 0:
enum Row : int {
  kRowShift = 0,   ///< a - log2(dt)
  kRowWeight = 1,  ///< dt 2^(a_63 - a), 0 where the document ends before the chunk does
  kRowIn = 2,      ///< 2^a, 0 where the document begins inside the chunk
  kRowLog = 3,     ///< a
  kRowStep = 4,    ///< dt
  kRowOut = 5,     ///< 2^(a_63 - a), 0 as for the weight
  kRows = 6
};
inline constexpr int kRecordFloats = kRows * kChunk;
inline constexpr int kForwardRecordFloats = 4 * kChunk;

/// Per chunk and unit: the powers of two that the images of S and G are to be multiplied with; 16
/// bytes, which the copy engine can move.
inline constexpr int kScaleFloats = 4;

/// Sizes that all kernels share. A unit is 64 neighbouring columns of X, its state is 64 x N.
struct Sizes {
  int tokens = 0;
  int chunks = 0;  ///< tokens of the last one beyond the end have dt = 0
  int heads = 0;
  int parts = 0;  ///< units of a head; 1 if units cut heads
  int units = 0;  ///< H P / 64
  int groups = 0;
  int group_units = 0;                ///< units / groups
  int record_floats = kRecordFloats;  ///< or kForwardRecordFloats
  int b_column = 0;                   ///< first column of B in xbc
  int c_column = 0;
  int segments = 0;  ///< stretches of the sequence that run in parallel
  int segment_chunks = 0;
  int pieces = 1;        ///< of a segment; each leaves its own state at its far edge
  int piece_chunks = 0;  ///< of all pieces of a segment but the last, which may be shorter
};

/// The document's reach around a token: start = 0 if it began before the chunk, else 1 + its first
/// token in the chunk; end = its last token in the chunk.
struct Span {
  std::uint8_t start, end;
};

/// Whether the tensor-core kernels take a scan of these sizes: heads of whole units, or heads of
/// kCutColumns in groups of whole units.
constexpr bool is_served(std::int64_t heads, std::int64_t head_dim, std::int64_t groups,
                         std::int64_t state) {
  if (head_dim <= 0 || groups <= 0 || heads <= 0 || heads % groups != 0) return false;
  if (head_dim % kPart == 0) return state == 64 || state == 128;
  return head_dim == kCutColumns && state == kCutState && heads / groups * head_dim % kPart == 0;
}

/// What kernels are compiled for: kPart for heads of whole units, or the columns of a head.
constexpr int columns_of(std::int64_t head_dim) {
  return head_dim % kPart == 0 ? kPart : static_cast<int>(head_dim);
}

/// @throws Error if the tensor cores do not serve the shape
Sizes sizes_of(const SsdCudaShape& shape, bool backward);

/// Parts of the workspace that forward and backward have; all null where its address is.
struct Common {
  float* records;
  Span* spans;
};

struct Partial {
  float* states;
  float* through;
};

struct ForwardSpace {
  Common common;
  Partial partial;
  float* entering;
  std::size_t bytes;
};

struct BackwardSpace {
  Common common;
  Partial state, adjoint;
  std::uint16_t* states;
  std::uint16_t* adjoints;
  float* scales;
  float* dstep;
  float* sums;
  std::size_t bytes;
};

ForwardSpace forward_space(const SsdCudaShape& shape, const Sizes& sizes, void* workspace);
BackwardSpace backward_space(const SsdCudaShape& shape, const Sizes& sizes, void* workspace);

inline constexpr int kSimpleChunk = 32;  ///< tokens that the simple kernels take at once: one warp
inline constexpr int kSimpleSums = 3;    ///< their shares of a chunk: of dA, dD, ddt_bias
constexpr std::int64_t simple_chunks(std::int64_t tokens) {
  return (tokens + kSimpleChunk - 1) / kSimpleChunk;
}

}  // namespace ssd
}  // namespace stowage::kernels
