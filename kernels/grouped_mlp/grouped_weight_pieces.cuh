#pragma once

#include "kernels/grouped_mlp/grouped_weight_schedule.cuh"

/// How a block shares its time where a few experts have many rows and many have few. A tile of many
/// rows is bound by its products, one of few rows by its way out; so while one warpgroup works on
/// long tiles, piece by piece, the other does a whole short tile between the pieces, in every block
/// alike. A long tile's sums stay in registers between its pieces, so the order in which they are
/// summed, and the bits, are those of whole tiles.
namespace stowage::kernels::grouped {

/// Tiles of so many steps and fewer are short. With 128 experts and rows as 1 / (e + 1) prototypes
/// with 6 were fastest where the clock held 1980 MHz, with 3 and 4 where power limited it.
constexpr int kShortSteps = 4;

/// A turn of fewer steps would cost more than it brings.
constexpr int kLeastPiece = 2;

/// Divides the experts into long and short ones, and long tiles into as many pieces as there are
/// short tiles. All lanes of one warp.
__device__ __forceinline__ void divide_tiles(const ScheduleTables& tables, WeightShare& share) {
  int experts = 0, steps = 0;
  for (int rank = static_cast<int>(threadIdx.x); rank < share.busy; rank += 32) {
    const int mine = ceil_div(rows_of(tables, share, tables.first[rank]), kDepth);
    if (mine <= kShortSteps) continue;
    ++experts;
    steps += mine;
  }
  experts = __reduce_add_sync(0xFFFFFFFFU, experts);
  steps = __reduce_add_sync(0xFFFFFFFFU, steps);
  if (threadIdx.x != 0) return;
  share.long_ones = experts;
  share.piece = max(ceil_div(steps, max(share.busy - experts, 1)), kLeastPiece);
}

/// A block's jobs, which its warpgroups take in turn, so those of the first have even numbers: a
/// piece of a long tile and a whole short one, or whole tiles where only one kind is left.
template <int kHeight, int kWidth>
class WeightPieces {
  using Tiles = WeightTiles<kHeight, kWidth>;

 public:
  /// All threads of the block; ends with a barrier. `room` as in place_experts.
  static __device__ __forceinline__ void build(ScheduleTables& tables, WeightShare& share,
                                               const WeightParameters& p, int, BlockLoad* room) {
    Tiles::build(tables, share, p, 0, room);
    if (threadIdx.x < 32) divide_tiles(tables, share);
    __syncthreads();
  }

  __device__ __forceinline__ WeightPieces(const ScheduleTables& tables, const WeightShare& share,
                                          const WeightParameters& p)
      : tables_(tables),
        share_(share),
        down_(Tiles::down(p)),
        across_(Tiles::across(p)),
        long_{-1, down_ * across_},
        short_{share.long_ones - 1, down_ * across_} {
    advance(long_, share_.long_ones);
    advance(short_, share_.busy);
  }

  /// Whether there is another job, and which.
  __device__ __forceinline__ bool next(Job& job) {
    const bool of_second = of_second_;
    of_second_ = !of_second_;
    if (has_long() && !(of_second && has_short())) {
      job.tile = tile_at(long_);
      const int left = ceil_div(job.tile.rows, kDepth) - done_;
      job.first = done_;
      job.steps = !of_second && has_short() ? min(left, share_.piece) : left;
      job.last = job.steps == left;
      done_ = job.last ? 0 : done_ + job.steps;
      if (job.last) advance(long_, share_.long_ones);
      return true;
    }
    if (!has_short()) return false;
    job.tile = tile_at(short_);
    job.first = 0;
    job.steps = ceil_div(job.tile.rows, kDepth);
    job.last = true;
    advance(short_, share_.busy);
    return true;
  }

  /// Whether there is another tile, and which, in the order in which they end.
  __device__ __forceinline__ bool next(Tile& tile) {
    Job job;
    do {
      if (!next(job)) return false;
    } while (!job.last);
    tile = job.tile;
    return true;
  }

  /// Whether the next job, which is the other warpgroup's, ends its tile; if not, the one after it
  /// does. True if there is none.
  __device__ __forceinline__ bool next_ends() const {
    if (of_second_ || !has_long() || !has_short()) return true;
    const int rows = rows_of(tables_, share_, tables_.first[long_.rank]);
    return ceil_div(rows, kDepth) - done_ <= share_.piece;
  }

 private:
  struct Cursor {
    int rank, tile;  // the tile among its expert's
  };

  __device__ __forceinline__ bool has_long() const { return long_.rank < share_.long_ones; }
  __device__ __forceinline__ bool has_short() const { return short_.rank < share_.busy; }

  /// To this block's next tile, of the experts before the rank `end`.
  __device__ __forceinline__ void advance(Cursor& at, int end) const {
    at.tile += share_.blocks;
    while (at.tile >= down_ * across_ && ++at.rank < end) at.tile = share_.first_tile[at.rank];
  }
  __device__ __forceinline__ Tile tile_at(const Cursor& at) const {
    return tile_of_rank<kHeight, kWidth>(tables_, share_, at.rank, at.tile, down_, across_);
  }

  const ScheduleTables& tables_;
  const WeightShare& share_;
  int down_, across_;
  Cursor long_, short_;
  int done_ = 0;  // steps of the long tile
  bool of_second_ = false;
};

}  // namespace stowage::kernels::grouped
