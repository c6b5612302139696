#pragma once

#include "kernels/grouped_mlp/grouped_schedule.cuh"

/// How persistent blocks share the tiles of weight gradients: one matrix of tiles per expert, whose
/// cost is the expert's row count. Everything follows from the offsets, so the order of the work
/// never depends on timing.
///
/// A tile of many rows is bound by its products, one of few rows by its way out. Were all blocks to
/// store the long ones first, memory would idle and then bind; so some blocks, the long group, do
/// the tiles of the longest experts while the others do those of the shortest; each group has as
/// many blocks as its share of the cost. Within a group experts come by decreasing rows, and each
/// deals its tiles to the blocks with the least to do (Graham's rule of the longest first, SIAM J.
/// Appl. Math. 17, 1969).
///
/// A router's load is alike: experts of few rows, none with many more than the others. Its tiles
/// cost too much the same for groups; all blocks go through the experts in the order of memory.
namespace stowage::kernels::grouped {

constexpr int kMaxBlocks = 256;

/// Rows of an expert that are summed at a stretch: tensor cores truncate as they add, so the error
/// grows with their number. What is longer takes another launch, which adds.
constexpr int kMostRows = 32768;

/// Experts that are placed by what the blocks have to do; those behind them go round.
constexpr int kPlacedExperts = 16;

/// Rows of an expert on average below which memory and L2 bind, not the products.
constexpr std::int64_t kFewRows = 768;

/// A load of few rows is alike where no expert has more than so many times the average's.
constexpr float kAlike = 1.25F;

/// What one block has to do, in shared memory beside the tables.
struct WeightShare {
  int first_tile[kMaxExperts];  // of this block, among its group's tiles of the expert of a rank
  int busy;                     // experts with rows
  bool alike;                   // the load
  int blocks, index;            // of the group; this block's number there
  int place;                    // of this block, when those that are placed have been
  int begin, end;               // tiles of the group, those of all ranks in order
  int long_ones, piece;         // of pieces: grouped_weight_pieces.cuh
  int done;                     // rows of each expert that launches before have summed
};

/// A block and the steps it has to do.
struct BlockLoad {
  int steps, block;
};

/// Rows of an expert that this launch sums.
__device__ __forceinline__ int rows_of(const ScheduleTables& tables, const WeightShare& share,
                                       int expert) {
  const int rows = tables.offset[expert + 1] - tables.offset[expert] - share.done;
  return min(max(rows, 0), kMostRows);
}

/// Whether an expert has more than so many times the average's rows. All threads of the block.
__device__ __forceinline__ bool longer_than(float times, const int* offsets, int experts) {
  const float most = times * static_cast<float>(offsets[experts]) / static_cast<float>(experts);
  bool longer = false;
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += static_cast<int>(blockDim.x))
    longer = longer || static_cast<float>(offsets[e + 1] - offsets[e]) > most;
  return __syncthreads_or(longer ? 1 : 0) != 0;
}

/// Experts by decreasing row count, or, of an alike load, those with rows before those without; and
/// how many have rows. All threads of the block; ends with a barrier.
__device__ __forceinline__ void rank_experts(ScheduleTables& tables, WeightShare& share,
                                             const WeightParameters& p) {
  const int experts = p.experts;
  if (threadIdx.x == 0) {
    share.busy = 0;
    share.done = p.done;
  }
  load_offsets(tables, p.offsets, experts);
  const bool alike = !longer_than(kAlike, tables.offset, experts) && p.rows < kFewRows * experts;
  if (threadIdx.x == 0) share.alike = alike;
  const auto key = [&](int expert) {
    const int rows = rows_of(tables, share, expert);
    return alike ? min(rows, 1) : rows;
  };
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += static_cast<int>(blockDim.x)) {
    const int mine = key(e);
    int rank = 0;
    for (int other = 0; other < experts; ++other) {
      const int theirs = key(other);
      rank += theirs > mine || (theirs == mine && other < e);
    }
    tables.first[rank] = e;
    if (mine > 0) atomicAdd(&share.busy, 1);
  }
  __syncthreads();
}

/// Steps of a tile of the expert of a rank, or the `way_out` of a tile where that is longer.
__device__ __forceinline__ int cost_of_rank(const ScheduleTables& tables, const WeightShare& share,
                                            int rank, int way_out) {
  return max(ceil_div(rows_of(tables, share, tables.first[rank]), kDepth), way_out);
}

/// The sum of `value` over the lanes of a warp up to this one.
__device__ __forceinline__ int sum_to_lane(int value) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(0xFFFFFFFFU, value, step);
    if (static_cast<int>(threadIdx.x % 32) >= step) value += other;
  }
  return value;
}

/// Divides tiles and blocks into the two groups. `way_out`: the steps that take as long as a tile's
/// way out takes where memory binds; 0: one group. All lanes of one warp.
__device__ __forceinline__ void split_groups(const ScheduleTables& tables, WeightShare& share,
                                             int tiles_of_expert, int way_out) {
  constexpr unsigned kAll = 0xFFFFFFFFU;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int grid = static_cast<int>(gridDim.x);
  int all = 0, of_long = 0;
  for (int rank = lane; rank < share.busy; rank += 32) {
    const int cost = cost_of_rank(tables, share, rank, way_out);
    all += cost;
    if (cost > way_out) of_long += cost;
  }
  all = __shfl_sync(kAll, sum_to_lane(all), 31);
  of_long = __shfl_sync(kAll, sum_to_lane(of_long), 31);
  int blocks = all > 0 ? __float2int_rn(static_cast<float>(grid) * static_cast<float>(of_long) /
                                        static_cast<float>(all))
                       : grid;
  if (blocks == 0) blocks = grid;
  int border = share.busy * tiles_of_expert;
  // The long group's tiles are as many as have its blocks' share of the cost.
  const float due = static_cast<float>(all) * static_cast<float>(blocks) / static_cast<float>(grid);
  int before = 0;
  for (int base = 0; blocks < grid && base < share.busy; base += 32) {
    const int rank = base + lane;
    const int cost = rank < share.busy ? cost_of_rank(tables, share, rank, way_out) : 0;
    const int to = before + sum_to_lane(cost);
    const float part = (due - static_cast<float>(to - cost)) / static_cast<float>(max(cost, 1));
    const bool here = cost > 0 && part >= 0 && part < 1;
    const unsigned lanes = __ballot_sync(kAll, here);
    if (lanes != 0) {
      const int at =
          rank * tiles_of_expert + __float2int_rn(part * static_cast<float>(tiles_of_expert));
      border = __shfl_sync(kAll, at, __ffs(static_cast<int>(lanes)) - 1);
      break;
    }
    before = __shfl_sync(kAll, to, 31);
  }
  if (lane != 0) return;
  const int block = static_cast<int>(blockIdx.x);
  const bool is_long = block < blocks;
  share.blocks = is_long ? blocks : grid - blocks;
  share.index = is_long ? block : block - blocks;
  share.begin = is_long ? 0 : border;
  share.end = is_long ? border : share.busy * tiles_of_expert;
}

/// Elements of the ascending `sorted[begin, end)` below `steps`, or up to it.
__device__ __forceinline__ int count_below(const BlockLoad* sorted, int begin, int end, int steps,
                                           bool or_equal) {
  const int from = begin;
  while (begin < end) {
    const int middle = (begin + end) / 2;
    const bool below = or_equal ? sorted[middle].steps <= steps : sorted[middle].steps < steps;
    begin = below ? middle + 1 : begin;
    end = below ? end : middle;
  }
  return begin - from;
}

/// Places the group's experts. Thread t holds the block that has the t-th least to do; the tiles of
/// an expert that are left when each block has had as many go to the first of them. `sorted`: room
/// for twice kMaxBlocks. All threads of the block; ends with a barrier.
__device__ __forceinline__ void place_experts(const ScheduleTables& tables, WeightShare& share,
                                              int tiles_of_expert, int way_out, BlockLoad* sorted) {
  const int thread = static_cast<int>(threadIdx.x);
  const int blocks = share.blocks, begin = share.begin, end = share.end;
  const bool holds = thread < blocks;
  const int first = begin / tiles_of_expert, behind = ceil_div(end, tiles_of_expert);
  const bool mixed = !share.alike && behind > first &&
                     4 * cost_of_rank(tables, share, first, way_out) >
                         5 * cost_of_rank(tables, share, behind - 1, way_out);
  const int placed = mixed ? min(behind, first + kPlacedExperts) : first;
  const auto first_tile_of = [&](int rank) { return max(begin, rank * tiles_of_expert); };
  BlockLoad mine{0, thread};
  for (int rank = first; rank < placed; ++rank) {
    if (holds && mine.block == share.index) share.first_tile[rank] = thread;
    const int tiles = min(end, (rank + 1) * tiles_of_expert) - first_tile_of(rank);
    const int more = tiles % blocks;  // blocks that have one tile more than the others
    const int cost = cost_of_rank(tables, share, rank, way_out);
    const int later = mine.steps + (thread < more ? cost : 0);
    if (holds) sorted[thread] = {later, mine.block};
    __syncthreads();
    // Both parts are sorted; a block's new place is its own and the others' that come before.
    const int place = thread < more ? thread + count_below(sorted, more, blocks, later, true)
                                    : thread - more + count_below(sorted, 0, more, later, false);
    if (holds) sorted[kMaxBlocks + place] = {later, mine.block};
    __syncthreads();
    if (holds) mine = sorted[kMaxBlocks + thread];
  }
  if (holds && mine.block == share.index) share.place = thread;
  __syncthreads();
  for (int rank = placed + thread; rank < behind; rank += static_cast<int>(blockDim.x)) {
    const int gone_round = (first_tile_of(rank) - first_tile_of(placed)) % blocks;
    const int place = share.place - gone_round;
    share.first_tile[rank] = place < 0 ? place + blocks : place;
  }
  __syncthreads();
}

/// What a warpgroup does in one turn: steps of a tile's contraction.
struct Job {
  Tile tile;
  int first, steps;
  bool last;  // of the tile
};

/// Tile `local` of the expert of a rank, `down` by `across` of them.
template <int kHeight, int kWidth>
__device__ __forceinline__ Tile tile_of_rank(const ScheduleTables& tables, const WeightShare& share,
                                             int rank, int local, int down, int across) {
  Tile tile;
  tile.expert = tables.first[rank];
  tile.begin = tables.offset[tile.expert] + share.done;
  tile.rows = rows_of(tables, share, tile.expert);
  // Tiles that follow each other share the operand of which they take more.
  if constexpr (kHeight > kWidth)
    place<16>(local, across, down, tile.column, tile.row);
  else
    place<8>(local, down, across, tile.row, tile.column);
  tile.row *= kHeight;
  tile.column *= kWidth;
  return tile;
}

/// A block's tiles, each one job.
template <int kHeight, int kWidth>
class WeightTiles {
 public:
  static __device__ __forceinline__ int down(const WeightParameters& p) {
    return ceil_div(p.outputs, kHeight);
  }
  static __device__ __forceinline__ int across(const WeightParameters& p) {
    return ceil_div(p.inputs, kWidth);
  }

  /// All threads of the block; ends with a barrier. `room` as in place_experts.
  static __device__ __forceinline__ void build(ScheduleTables& tables, WeightShare& share,
                                               const WeightParameters& p, int way_out,
                                               BlockLoad* room) {
    const int tiles = down(p) * across(p);
    rank_experts(tables, share, p);
    if (threadIdx.x < 32) split_groups(tables, share, tiles, share.alike ? 0 : way_out);
    __syncthreads();
    place_experts(tables, share, tiles, way_out, room);
  }

  __device__ __forceinline__ WeightTiles(const ScheduleTables& tables, const WeightShare& share,
                                         const WeightParameters& p)
      : tables_(tables),
        share_(share),
        down_(down(p)),
        across_(across(p)),
        rank_(share.begin / (down_ * across_) - 1),
        tile_(share.end) {}

  /// Whether this block has another tile, and which.
  __device__ __forceinline__ bool next(Tile& tile) {
    const int tiles = down_ * across_;
    tile_ += share_.blocks;
    while (tile_ >= min(share_.end, (rank_ + 1) * tiles)) {
      ++rank_;
      if (rank_ * tiles >= share_.end) return false;
      tile_ = max(share_.begin, rank_ * tiles) + share_.first_tile[rank_];
    }
    tile = tile_of_rank<kHeight, kWidth>(tables_, share_, rank_, tile_ - rank_ * tiles, down_,
                                         across_);
    return true;
  }
  __device__ __forceinline__ bool next(Job& job) {
    if (!next(job.tile)) return false;
    job.first = 0;
    job.steps = ceil_div(job.tile.rows, kDepth);
    job.last = true;
    return true;
  }
  __device__ __forceinline__ bool next_ends() const { return true; }

 private:
  const ScheduleTables& tables_;
  const WeightShare& share_;
  int down_, across_;
  int rank_;
  int tile_;  // among those of all ranks
};

}  // namespace stowage::kernels::grouped
