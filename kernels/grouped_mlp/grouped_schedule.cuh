#pragma once

#include <type_traits>

#include "kernels/grouped_mlp/grouped_launch.hpp"

/// How persistent blocks share the output tiles of all experts, from offsets that only the device
/// knows. Here: of products over rows, whose tiles cost about the same. Tile i of the whole launch
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
  int begin;  // first row of the expert
  int rows;   // of the expert
  int strip;  // of a product over rows: which tile from the left
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
  explicit __host__ __device__ __forceinline__ Strips(int columns)
      : count(ceil_div(columns, kWidth)) {
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

  /// Columns of all.
  __host__ __device__ __forceinline__ int width() const {
    return count * kWidth - narrow * (kWidth - kNarrow);
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

/// Of a tile over rows.
enum class Shape { flat, narrow, tall };

/// Tiles over the rows of each expert: flat ones, 128 rows high, of operands `Flat`, or narrow as
/// Strips has them. Where half of the last row of them or more would be empty, it and the one above
/// it, 129 to 192 rows, are one row of tall tiles, narrower than the flat ones, of operands `Tall`,
/// if that is less to multiply.
template <class Flat, class Tall, int kNarrow = 0>
class RowTiles {
 public:
  using FlatStrips = Strips<Flat::kColumns, kNarrow>;
  static constexpr bool kHasTall = !std::is_same_v<Flat, Tall>;

  static __host__ __device__ constexpr int tall_across(int columns) {
    return ceil_div(columns, Tall::kColumns);
  }
  /// Whether tall tiles, if there are any, are less to multiply than two rows of flat ones.
  static __host__ __device__ __forceinline__ bool tall_pays(int columns) {
    return kHasTall &&
           tall_across(columns) * Tall::kColumns / 2 * 3 < FlatStrips(columns).width() * 2;
  }
  /// Tiles beside each other that have row `row` of an expert.
  static __device__ __forceinline__ int beside(int row, int rows, int columns) {
    return row < flat_down(rows, columns) * Flat::kHeight ? FlatStrips(columns).count
                                                          : tall_across(columns);
  }

  /// All threads of the block; ends with a barrier.
  static __device__ __forceinline__ void build(ScheduleTables& tables, const int* offsets,
                                               int experts, int columns) {
    load_offsets(tables, offsets, experts);
    const int lane = static_cast<int>(threadIdx.x);
    if (lane < 32) {
      int before = 0;
      for (int base = 0; base < experts; base += 32) {
        const int e = base + lane;
        int tiles = 0;
        if (e < experts) {
          const int rows = tables.offset[e + 1] - tables.offset[e];
          tiles = flat_down(rows, columns) * FlatStrips(columns).count;
          if (ends_tall(rows, columns)) tiles += tall_across(columns);
        }
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

  /// Whether the current tile is tall.
  __device__ __forceinline__ bool tall(int columns) {
    while (index_ >= tables_.first[expert_ + 1]) ++expert_;
    return kHasTall && behind_flat(FlatStrips(columns), columns) >= 0;
  }
  /// Whether it is narrow, if it is not tall.
  __device__ __forceinline__ bool narrow(int columns) const {
    if constexpr (kNarrow == 0) return false;
    return FlatStrips(columns).is_narrow(get<Shape::flat>(columns).strip);
  }

  /// The current tile, whose shape these have told. Apart from them, so that little is held while
  /// the sums fill the registers.
  template <Shape kShape>
  __device__ __forceinline__ Tile get(int columns) const {
    const FlatStrips strips(columns);
    Tile tile;
    tile.expert = expert_;
    tile.begin = tables_.offset[expert_];
    tile.rows = rows();
    const int flat = flat_down(tile.rows, columns);
    int down = flat;
    if constexpr (kShape == Shape::tall) {
      tile.strip = behind_flat(strips, columns);
      tile.column = tile.strip * Tall::kColumns;
    } else {
      int across;
      place<16>(index_ - tables_.first[expert_], flat, strips.count, down, across);
      tile.strip = strips.at(across, expert_);
      tile.column = strips.column(tile.strip);
    }
    tile.row = down * Flat::kHeight;
    return tile;
  }

 private:
  static __device__ __forceinline__ bool ends_tall(int rows, int columns) {
    return tall_pays(columns) && rows > Flat::kHeight &&
           (rows - 1) % Flat::kHeight < Tall::kHeight - Flat::kHeight;
  }
  /// Rows of flat tiles.
  static __device__ __forceinline__ int flat_down(int rows, int columns) {
    return ceil_div(rows, Flat::kHeight) - (ends_tall(rows, columns) ? 2 : 0);
  }
  __device__ __forceinline__ int rows() const {
    return tables_.offset[expert_ + 1] - tables_.offset[expert_];
  }

  /// The current tile's number among the tall ones of its expert, which are behind the flat ones;
  /// less than 0 if it is one of those.
  __device__ __forceinline__ int behind_flat(const FlatStrips& strips, int columns) const {
    return index_ - tables_.first[expert_] - flat_down(rows(), columns) * strips.count;
  }

  const ScheduleTables& tables_;
  int expert_ = 0;
  int index_ = static_cast<int>(blockIdx.x);
};

}  // namespace stowage::kernels::grouped
