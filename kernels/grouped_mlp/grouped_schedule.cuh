#pragma once

#include "kernels/grouped_mlp/grouped_launch.hpp"

/// How persistent blocks share the output tiles of all experts, from offsets that only the device
/// knows. Tile i of the whole launch belongs to block i mod gridDim.x; no counter, so nothing has
/// to be cleared and the order of the work never depends on timing.
namespace stowage::kernels::grouped {

__host__ __device__ constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }

/// The tables of a launch, in shared memory.
struct ScheduleTables {
  int offset[kMaxExperts + 1];  // rows before each expert
  int first[kMaxExperts + 1];   // rows: tiles before each expert. weights: experts by rank
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

/// Experts by decreasing row count. All threads of the block; ends with a barrier.
__device__ __forceinline__ void rank_experts(ScheduleTables& tables, const int* offsets,
                                             int experts) {
  load_offsets(tables, offsets, experts);
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += static_cast<int>(blockDim.x)) {
    const int mine = tables.offset[e + 1] - tables.offset[e];
    int rank = 0;
    for (int other = 0; other < experts; ++other) {
      const int rows = tables.offset[other + 1] - tables.offset[other];
      rank += rows > mine || (rows == mine && other < e);
    }
    tables.first[rank] = e;
  }
  __syncthreads();
}

/// Tiles of one matrix per expert, whose cost is the expert's row count: experts by decreasing
/// count, dealt to the blocks to and fro, so that no block ends much later than the others. With
/// `kSkipsEmpty`, experts without rows have no tiles.
template <int kHeight, int kWidth, bool kSkipsEmpty>
class WeightTiles {
 public:
  __device__ __forceinline__ WeightTiles(const ScheduleTables& tables, const WeightParameters& p)
      : tables_(tables),
        experts_(p.experts),
        down_(ceil_div(p.outputs, kHeight)),
        across_(ceil_div(p.inputs, kWidth)) {}

  /// Whether this block has another tile, and which.
  __device__ __forceinline__ bool next(Tile& tile) {
    const int grid = static_cast<int>(gridDim.x);
    const int block = static_cast<int>(blockIdx.x);
    const int index = round_ * grid + (round_ % 2 == 0 ? block : grid - 1 - block);
    const int rank = index / (down_ * across_);
    if (rank >= experts_) return false;
    ++round_;
    tile.expert = tables_.first[rank];
    tile.begin = tables_.offset[tile.expert];
    tile.rows = tables_.offset[tile.expert + 1] - tile.begin;
    if (kSkipsEmpty && tile.rows == 0) return false;  // nor have those that follow
    int down, across;
    place<8>(index - rank * (down_ * across_), down_, across_, down, across);
    tile.row = down * kHeight;
    tile.column = across * kWidth;
    return true;
  }

 private:
  const ScheduleTables& tables_;
  int experts_;
  int down_, across_;
  int round_ = 0;
};

}  // namespace stowage::kernels::grouped
