#pragma once

#include "kernels/grouped_mlp/grouped_launch.hpp"

/// How persistent blocks share the output tiles of all experts, from offsets that only the device
/// knows. Here: of products over rows, whose tiles all cost the same. Tile i of the whole launch
/// belongs to block i mod gridDim.x; no counter, so nothing has to be cleared and the order of the
/// work never depends on timing. Of weight gradients: grouped_weight_schedule.cuh.
namespace stowage::kernels::grouped {

__host__ __device__ constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }

/// The tables of a launch, in shared memory.
struct ScheduleTables {
  int offset[kMaxExperts + 1];  // rows before each expert
  int first[kMaxExperts + 1];   // tiles before each expert; of weights: experts by rank
};

/// One output tile and the contraction it needs.
struct Tile {
  int expert;
  int row;  // of the output tile, in its expert's matrix
  int column;
  int strip;  // which of Strips, of a product over rows
  int begin;  // first row of the expert
  int rows;   // of the expert
};

/// How many of the tiles over some columns, the last ones, are `narrow` and not `width` wide: two
/// where that is enough.
__host__ __device__ constexpr int narrow_strips(int columns, int width, int narrow) {
  const int count = ceil_div(columns, width);
  return count * width - columns < 2 * (width - narrow) ? 0 : count < 2 ? count : 2;
}

/// The tiles beside each other over some columns: kWidth wide each, the narrow ones kNarrow, which
/// is 0 where there are none.
template <int kWidth, int kNarrow>
struct Strips {
  explicit __device__ __forceinline__ Strips(int columns) : count(ceil_div(columns, kWidth)) {
    if constexpr (kNarrow > 0) narrow = narrow_strips(columns, kWidth, kNarrow);
  }
  __device__ __forceinline__ bool is_narrow(int strip) const {
    return kNarrow > 0 && strip >= count - narrow;
  }
  __device__ __forceinline__ int column(int strip) const {
    return strip * kWidth - max(0, strip - (count - narrow)) * (kWidth - kNarrow);
  }
  /// The strip at a place of an expert's row of tiles: experts begin differently, or else narrow
  /// tiles, which cost less, might all fall to the same blocks.
  __device__ __forceinline__ int at(int place, int expert) const {
    return narrow > 0 ? (place + expert * narrow) % count : place;
  }

  int count;
  int narrow = 0;  // of them, the last ones
};

/// Place of tile `local` of a matrix of tiles: columns of up to `kGroup` tiles side by side, so
/// that the tiles in flight share rows of both operands in L2.
template <int kGroup>
__device__ __forceinline__ void place(int local, int tiles_down, int tiles_across, int& down,
                                      int& across) {
  const int group = local / (kGroup * tiles_across);
  const int within = local - group * (kGroup * tiles_across);
  const int height = min(kGroup, tiles_down - group * kGroup);
  across = within / height;
  down = group * kGroup + within - across * height;
}

__device__ __forceinline__ void load_offsets(ScheduleTables& tables, const int* offsets,
                                             int experts) {
  for (int e = static_cast<int>(threadIdx.x); e <= experts; e += static_cast<int>(blockDim.x)) {
    tables.offset[e] = offsets[e];
  }
  __syncthreads();
}

/// Tiles over the rows of each expert, `tiles_across` beside each other.
class RowTiles {
 public:
  /// All threads of the block; ends with a barrier.
  static __device__ __forceinline__ void build(ScheduleTables& tables, const int* offsets,
                                               int experts, int tiles_across) {
    load_offsets(tables, offsets, experts);
    const int lane = static_cast<int>(threadIdx.x);
    if (lane < 32) {
      int before = 0;
      for (int base = 0; base < experts; base += 32) {
        const int e = base + lane;
        const int tiles =
            e < experts
                ? ceil_div(tables.offset[e + 1] - tables.offset[e], kTileRows) * tiles_across
                : 0;
        int sum = tiles;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
          const int other = __shfl_up_sync(0xFFFFFFFFU, sum, step);
          if (lane >= step) sum += other;
        }
        if (e < experts) tables.first[e] = before + sum - tiles;
        before += __shfl_sync(0xFFFFFFFFU, sum, 31);
      }
      if (lane == 0) tables.first[experts] = before;
    }
    __syncthreads();
  }

  explicit __device__ __forceinline__ RowTiles(const ScheduleTables& tables) : tables_(tables) {}

  /// Whether this block has another tile.
  __device__ __forceinline__ bool more(int experts) const {
    return index_ < tables_.first[experts];
  }
  __device__ __forceinline__ void next() { index_ += static_cast<int>(gridDim.x); }

  /// The current tile. Apart from `more`, so that little is held while the sums fill the registers.
  template <class Strips>
  __device__ __forceinline__ Tile get(const Strips& strips) {
    while (index_ >= tables_.first[expert_ + 1]) ++expert_;
    Tile tile;
    tile.expert = expert_;
    tile.begin = tables_.offset[expert_];
    tile.rows = tables_.offset[expert_ + 1] - tile.begin;
    int down, across;
    place<16>(index_ - tables_.first[expert_], ceil_div(tile.rows, kTileRows), strips.count, down,
              across);
    tile.row = down * kTileRows;
    tile.strip = strips.at(across, expert_);
    tile.column = strips.column(tile.strip);
    return tile;
  }

 private:
  const ScheduleTables& tables_;
  int expert_ = 0;
  int index_ = static_cast<int>(blockIdx.x);
};

}  // namespace stowage::kernels::grouped
