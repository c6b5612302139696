#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/grouped_mlp/grouped_launch.hpp"
#include "kernels/optimizer/newton_schulz_launch.hpp"

/// The products of a launch of newton_schulz_sm90.cu: newton_schulz_chain.cu makes them.
namespace stowage::kernels::optimizer {

using grouped::kTileRows;

/// Blocks of a cluster. They take tiles of one width that lie beside each other, a row of two, and
/// each loads half of the rows that both need.
constexpr int kAcross = 2;
/// Columns of a tile: rows of two cover multiples of 128 columns but 128 itself exactly.
constexpr int kWidth = 192;
/// Of the last tiles of a row of tiles, where that is enough.
constexpr int kNarrow = 128;
/// Operands are loaded in boxes of so many rows and columns.
constexpr int kBox = 64;
/// Of a launch; five iterations have 18 products for each shape.
constexpr int kMostProducts = 176;
/// Of a shape: X, its other copy, and five squares.
constexpr int kMostMaps = 7 * kMostShapes;

/// What becomes of sums: fp16; fp16 in both halves of a symmetric matrix; the same of the
/// polynomial of A, of which they are A A; bf16, scaled.
enum class Finish : std::uint8_t { store, mirror, polynomial, last };

/// Which operands are contiguous along the output.
enum class Along : std::uint8_t { none, second, both };

/// A product of each matrix of a shape.
struct Product {
  int first;                 // pair of tiles of the launch
  int pairs;                 // of one matrix, or of two
  int after;                 // tiles of a matrix that come before
  int count;                 // of matrices
  int rows, columns, depth;  // of the result, and contracted
  std::int16_t a, b;         // maps
  Along along;
  Finish finish;
  bool lower;                 // only tiles that reach below the diagonal
  bool apart;                 // a matrix has one tile: a pair is of two matrices
  float scale;                // of the last one
  const std::uint16_t* gram;  // (count, rows, columns), of a polynomial
  std::uint16_t* out;         // (count, rows, columns)
  int* done;                  // by matrix: warps that are done with a tile
};

struct Chain {
  CUtensorMap maps[kMostMaps];
  Product products[kMostProducts];
  int count, pairs;  // of products, and of all of them
  int* next;         // the pair that is taken next
  float a, b, c;     // of the polynomial of kFp16Norm^2 A
};
static_assert(sizeof(Chain) <= 32764);  // what a kernel's arguments may take

/// The pairs of tiles over some columns.
struct PairsAcross {
  explicit __host__ __device__ constexpr PairsAcross(int columns)
      : count((columns + kAcross * kWidth - 1) / (kAcross * kWidth)) {
    const int most = (count * kAcross * kWidth - columns) / (kAcross * (kWidth - kNarrow));
    narrow = most < count ? most : count;
  }
  __host__ __device__ constexpr int width(int pair) const {
    return pair < count - narrow ? kWidth : kNarrow;
  }
  __host__ __device__ constexpr int column(int pair) const {
    const int behind = pair - (count - narrow);  // the first narrow one
    return kAcross * (pair * kWidth - (behind > 0 ? behind : 0) * (kWidth - kNarrow));
  }

  int count;
  int narrow = 0;  // of them, the last ones
};

/// The columns that a row of tiles of a symmetric product reaches.
__host__ __device__ constexpr int lower_reach(int down, int columns) {
  const int reach = (down + 1) * kTileRows;
  return reach < columns ? reach : columns;
}

/// @param blocks one for each multiprocessor, two at least  @param stream a cudaStream_t
/// @return a cudaError_t
int launch_chain(const Chain& chain, int blocks, void* stream);

}  // namespace stowage::kernels::optimizer
