#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/optimizer/newton_schulz.hpp"
#include "kernels/workspace_parts.hpp"

namespace stowage::kernels {

/// The smaller extent of matrices from which on tiles of tensor cores pay.
inline constexpr std::int64_t kLeastByTiles = 128;

/// Elements of a sum of squares.
inline constexpr std::int64_t kSquaresChunk = 16384;

inline std::int64_t squares_chunks(const NewtonSchulz& op) {
  return (op.rows * op.columns + kSquaresChunk - 1) / kSquaresChunk;
}

/// Rows of a block of a symmetric product: whole tiles, and four blocks at most, since each is a
/// product of its own.
inline std::int64_t symmetric_block(std::int64_t extent) {
  constexpr std::int64_t kTile = 128, kBlocks = 4;
  return std::max<std::int64_t>(1, (extent + kTile * kBlocks - 1) / (kTile * kBlocks)) * kTile;
}

/// Parts of the workspace: of all matrices the other copy, A, the polynomial of A, and the sums of
/// squares.
template <class S>
struct NewtonSchulzRoom {
  S* other = nullptr;
  S* gram = nullptr;
  S* polynomial = nullptr;
  double* squares = nullptr;
  std::size_t bytes = 0;

  NewtonSchulzRoom(const NewtonSchulz& op, void* workspace) {
    WorkspaceParts parts(workspace, 256);
    parts.take(other, op.count * op.rows * op.columns);
    parts.take(gram, op.count * op.smaller() * op.smaller());
    parts.take(polynomial, op.count * op.smaller() * op.smaller());
    parts.take(squares, op.count * squares_chunks(op));
    bytes = parts.bytes();
  }
};

/// What the polynomial of the last iteration is multiplied by.
inline double scale_of(const NewtonSchulz& op, int step) {
  return step + 1 == op.options.steps ? op.scale : 1.0;
}

}  // namespace stowage::kernels

/// The launches of its kernels on device memory. `stream` is a cudaStream_t, the result a
/// cudaError_t; S is float or Bf16.
namespace stowage::kernels::optimizer {

/// to = x / (|x|_F + 1e-7) of each matrix. @param squares (count, chunks)
template <class S>
int launch_normalise(const NewtonSchulz& op, const S* x, S* to, double* squares, void* stream);

/// The upper blocks of (count, n, n) matrices become the mirror images of the lower ones.
template <class S>
int launch_mirror(S* matrices, std::int64_t count, std::int64_t n, void* stream);

/// square = scale (a I + b gram + c square), where only the lower blocks of `square` are given.
template <class S>
int launch_polynomial(const S* gram, S* square, std::int64_t count, std::int64_t n,
                      const NewtonSchulzOptions& options, double scale, void* stream);

/// The same by tiles of tensor cores, for bf16 on Hopper: A with both of its halves; its
/// polynomial with both; y = polynomial X, or X polynomial. All at 16-byte aligned addresses.
int launch_gram_sm90(const NewtonSchulz& op, const execution::Bf16* x, execution::Bf16* gram,
                     int blocks, void* stream);
int launch_polynomial_sm90(const NewtonSchulz& op, const execution::Bf16* gram,
                           execution::Bf16* polynomial, double scale, int blocks, void* stream);
int launch_step_sm90(const NewtonSchulz& op, const execution::Bf16* polynomial,
                     const execution::Bf16* x, execution::Bf16* y, int blocks, void* stream);

}  // namespace stowage::kernels::optimizer
