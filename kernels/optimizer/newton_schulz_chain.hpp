#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/grouped_mlp/grouped_launch.hpp"
#include "kernels/optimizer/newton_schulz_launch.hpp"

/// The products of a launch of newton_schulz_sm90.cu: newton_schulz_chain.cu makes them.
namespace stowage::kernels::optimizer {

using grouped::kTileRows;

/// Columns of a tile.
constexpr int kWidth = 192;
/// Of the last tiles of a row of tiles, where that is enough.
constexpr int kNarrow = 128;
/// Of a launch; five iterations have 18 products for each shape.
constexpr int kMostProducts = 176;
/// Of a shape three for X and its other copy, and five squares in two boxes each: kNarrow rows are
/// those of a tile.
constexpr int kMostMaps = 16 * kMostShapes;

/// What becomes of sums: fp16; fp16 in both halves of a symmetric matrix; the same of the
/// polynomial of A, of which they are A A; bf16, scaled.
enum class Finish : std::uint8_t { store, mirror, polynomial, last };

/// Which operands are contiguous along the output.
enum class Along : std::uint8_t { none, second, both };

/// A product of each matrix of a shape.
struct Product {
  int first;                 // tile of the launch
  int tiles;                 // of one matrix
  int after;                 // tiles of a matrix that come before
  int rows, columns, depth;  // of the result, and contracted
  std::int16_t a, b;         // maps
  std::int16_t narrow_b;     // of a narrow tile
  Along along;
  Finish finish;
  bool lower;                 // only tiles that reach below the diagonal
  float scale;                // of the last one
  const std::uint16_t* gram;  // (count, rows, columns), of a polynomial
  std::uint16_t* out;         // (count, rows, columns)
  int* done;                  // by matrix: warps that are done with a tile
};

struct Chain {
  CUtensorMap maps[kMostMaps];
  Product products[kMostProducts];
  int count, tiles;  // of products, and of all of them
  int* next;         // the tile that is taken next
  float a, b, c;     // of the polynomial of kFp16Norm^2 A
};
static_assert(kNarrow == kTileRows);
static_assert(sizeof(Chain) <= 32764);  // what a kernel's arguments may take

/// Tiles beside each other in a row of tiles of a symmetric product.
__host__ __device__ constexpr int lower_across(int down, int across) {
  const int reached = ((down + 1) * kTileRows - 1) / kWidth + 1;
  return reached < across ? reached : across;
}

/// @param blocks one for each multiprocessor  @param stream a cudaStream_t  @return a cudaError_t
int launch_chain(const Chain& chain, int blocks, void* stream);

}  // namespace stowage::kernels::optimizer
