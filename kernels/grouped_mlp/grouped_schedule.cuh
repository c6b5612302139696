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
  int begin;  // first row of the expert
  int rows;   // of the expert
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
  template <int kWidth>
  __device__ __forceinline__ Tile get(int tiles_across) {
    while (index_ >= tables_.first[expert_ + 1]) ++expert_;
    Tile tile;
    tile.expert = expert_;
    tile.begin = tables_.offset[expert_];
    tile.rows = tables_.offset[expert_ + 1] - tile.begin;
    int down, across;
    place<16>(index_ - tables_.first[expert_], ceil_div(tile.rows, kTileRows), tiles_across, down,
              across);
    tile.row = down * kTileRows;
    tile.column = across * kWidth;
    return tile;
  }

 private:
  const ScheduleTables& tables_;
  int expert_ = 0;
  int index_ = static_cast<int>(blockIdx.x);
};

}  // namespace stowage::kernels::grouped
