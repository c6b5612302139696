#pragma once

#include <cstdint>

#include "execution/global_index.hpp"
#include "execution/op.hpp"
#include "kernels/matrix.hpp"

namespace stowage::kernels {

/// Elementwise operators, written once as functors for both backends (functors.hpp).

/// out = a + b, rounded once; one floating dtype and shape. out may be a or b.
void add(execution::Queue& queue, const execution::View& a, const execution::View& b,
         const execution::View& out);

/// Every element of x, of any dtype, becomes `value` (rounded to that dtype).
void fill(execution::Queue& queue, const execution::View& x, double value);

/// Element i of x becomes element index(i) of a random stream, nearly normal:
/// execution::normal(seed, stream, index(i), scale), rounded to the floating dtype of x; the same
/// bits on every backend.
void fill_normal(execution::Queue& queue, const execution::View& x, std::uint64_t seed,
                 std::uint64_t stream, float scale, const execution::GlobalIndex& index = {});

/// y = x in the floating dtype of y; same number of elements, dtypes fp32 and bf16, or equal.
void cast(execution::Queue& queue, const execution::View& x, const execution::View& y);

/// Columns of a tensor, row by row without gaps, and back. packed: rows * count elements of the
/// same floating dtype, in any shape; on the way back also of its accumulation dtype, then rounded.
void pack_columns(execution::Queue& queue, const Columns& from, const execution::View& packed);
void unpack_columns(execution::Queue& queue, const execution::View& packed, const Columns& to);

execution::Cost add_cost(std::int64_t count, execution::Dtype storage);
/// Blocks of columns that lie side by side, each of which parts share equally.
struct ColumnBlocks {
  std::int64_t widths[3] = {};         ///< 0: none
  std::int64_t copies[3] = {1, 1, 1};  ///< neighbouring parts that have the same share of a block

  std::int64_t width() const { return widths[0] + widths[1] + widths[2]; }
  /// Columns of a block that one of `parts` has, and of all blocks.
  std::int64_t share(int block, std::int64_t parts) const {
    return widths[block] * copies[block] / parts;
  }
  std::int64_t part_width(std::int64_t parts) const {
    return share(0, parts) + share(1, parts) + share(2, parts);
  }
};

/// parts (p, rows, part_width(p)) of x (rows, width): part i has share i / copies of every block,
/// of p / copies equal ones, side by side.
void split_columns(execution::Queue& queue, const execution::View& x, const ColumnBlocks& blocks,
                   const execution::View& parts);
/// And back: x has the sum of what parts have of the same share, in their order and in the
/// accumulation dtype, rounded once.
void join_columns(execution::Queue& queue, const execution::View& parts, const ColumnBlocks& blocks,
                  const execution::View& x);

/// Of either direction.
execution::Cost split_columns_cost(std::int64_t rows, const ColumnBlocks& blocks,
                                   std::int64_t parts, execution::Dtype storage);
execution::Cost pack_columns_cost(std::int64_t count, execution::Dtype storage);
execution::Cost fill_cost(std::int64_t count, execution::Dtype dtype);
execution::Cost cast_cost(std::int64_t count, execution::Dtype from, execution::Dtype to);

}  // namespace stowage::kernels
