#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/optimizer/newton_schulz.hpp"
#include "kernels/workspace_parts.hpp"

namespace stowage::kernels {

/// The smaller extent of matrices from which on tiles of tensor cores pay.
inline constexpr std::int64_t kLeastByTiles = 16;

/// Whether matrices go by tiles on a Hopper GPU. Their shape decides, so that a matrix gets the
/// same bits among any others.
inline bool fits_tiles(const EqualMatrices& m, execution::Dtype storage) {
  return storage == execution::Dtype::bf16 && m.rows % 8 == 0 && m.columns % 8 == 0 &&
         m.smaller() >= kLeastByTiles;
}

/// How the iterations are made by tiles: each part of them on A alone, with one product with X at
/// its end. All ones: X = P X in each.
std::vector<int> gram_iterations(const EqualMatrices& m, const NewtonSchulzOptions& options);

/// The norm of X in fp16 (newton_schulz_sm90.cu), a power of two. A of a large matrix has elements
/// near 1 / (n sqrt(m)), below 1e-5; times the square of this they are normal numbers, and A A of a
/// matrix of rank one is no more than 4096.
inline constexpr double kFp16Norm = 8;

/// Elements of a sum of squares.
inline constexpr std::int64_t kSquaresChunk = 16384;

inline std::int64_t squares_chunks(const EqualMatrices& m) {
  return (m.rows * m.columns + kSquaresChunk - 1) / kSquaresChunk;
}

/// Launches that products of tiles take at most: an iteration has fewer products than one.
inline std::int64_t launches(const NewtonSchulzOptions& options) { return options.steps; }

/// Rows of a block of a symmetric product: whole tiles, and four blocks at most, since each is a
/// product of its own.
inline std::int64_t symmetric_block(std::int64_t extent) {
  constexpr std::int64_t kTile = 128, kBlocks = 4;
  return std::max<std::int64_t>(1, (extent + kTile * kBlocks - 1) / (kTile * kBlocks)) * kTile;
}

/// Parts of the workspace for matrices of one shape: the other copy, A, the polynomial of A, and
/// the sums of squares. By tiles also A times the polynomial, products of polynomials, counters.
template <class S>
struct NewtonSchulzRoom {
  S* other = nullptr;
  S* gram = nullptr;
  S* polynomial = nullptr;
  S* product = nullptr;
  S* power = nullptr;
  S* other_power = nullptr;
  double* squares = nullptr;
  int* counters = nullptr;  ///< tiles taken, by launch; what is done, by matrix

  NewtonSchulzRoom(const NewtonSchulz& op, const EqualMatrices& m, WorkspaceParts& parts) {
    const std::int64_t square = m.count * m.smaller() * m.smaller();
    parts.take(other, m.elements());
    parts.take(gram, square);
    parts.take(polynomial, square);
    parts.take(squares, m.count * squares_chunks(m));
    if (!fits_tiles(m, op.storage)) return;
    for (S** one : {&product, &power, &other_power}) parts.take(*one, square);
    parts.take(counters, launches(op.options) + m.count);
  }
};

/// The workspace, in parts for matrices of one shape.
inline WorkspaceParts newton_schulz_workspace(void* workspace) {
  return WorkspaceParts(workspace, 256);
}

/// What the polynomial of an iteration is multiplied by: that of the last one.
inline double scale_of(const EqualMatrices& m, const NewtonSchulzOptions& options, int step) {
  return step + 1 == options.steps ? m.scale : 1.0;
}

/// Matrices that go by tiles.
struct TileMatrices {
  EqualMatrices shape;
  execution::Bf16* x;
  NewtonSchulzRoom<execution::Bf16> room;
  std::vector<int> parts;  ///< gram_iterations

  /// Where X begins, so that after all parts it is in x.
  execution::Bf16* start() const { return parts.size() % 2 == 0 ? x : room.other; }
};

}  // namespace stowage::kernels

/// The launches of its kernels on device memory. `stream` is a cudaStream_t, the result a
/// cudaError_t; S is float or Bf16.
namespace stowage::kernels::optimizer {

/// to = x / (|x|_F + 1e-7) of each matrix. @param squares (count, chunks)
template <class S>
int launch_normalise(const EqualMatrices& m, const S* x, S* to, double* squares, void* stream);

/// The upper blocks of (count, n, n) matrices become the mirror images of the lower ones.
template <class S>
int launch_mirror(S* matrices, std::int64_t count, std::int64_t n, void* stream);

/// square = scale (a I + b gram + c square), where only the lower blocks of `square` are given.
template <class S>
int launch_polynomial(const S* gram, S* square, std::int64_t count, std::int64_t n,
                      const NewtonSchulzOptions& options, double scale, void* stream);

/// All of it by tiles of tensor cores, on Hopper; each x at a 16-byte aligned address.
int launch_newton_schulz_sm90(const NewtonSchulzOptions& options, std::span<const TileMatrices> all,
                              int blocks, void* stream);

/// Of how many shapes one launch takes matrices.
inline constexpr int kMostShapes = 8;

/// start() = kFp16Norm x / (|x|_F + 1e-7) of each matrix, in fp16; no counter has counted. Of
/// kMostShapes at most.
int launch_normalise_fp16(const NewtonSchulzOptions& options, std::span<const TileMatrices> all,
                          void* stream);

}  // namespace stowage::kernels::optimizer
