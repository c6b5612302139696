// Newton-Schulz iterations on Hopper, on A = X X^T instead of X (newton_schulz.hpp).
//
// With P = a I + b A + c A A an iteration is X = P X, so the next A is P A P: all matrices are
// polynomials of the first A, so they commute, and products of two are symmetric. Of some
// iterations A = (A P) P and Q = Q P are made, and X is multiplied by Q once ("Gram Newton-Schulz",
// Zhang, Amsel, Chen, Dao 2026, https://tridao.me/blog/2026/gram-newton-schulz). How many:
// gram_iterations in newton_schulz.cpp.
//
// Layout: matrices of some shapes, of each one behind the other; extents are multiples of 8.
// Numerics: operands in fp16, which is four times as precise here as bf16; X has the norm
// kFp16Norm, which keeps A's elements above the least normal number. Sums in fp32 in the order of
// the contraction, rounded once; the polynomial from rounded sums, in fp32; the last product is
// rounded to bf16 once. Design: one launch of persistent blocks has all products of all matrices.
// Tiles are ordered by product, then by matrix; a block takes the next one from a counter in
// memory, and waits until what it reads is done: a counter of each matrix. A tile waits for earlier
// ones alone, which blocks have taken that run, so no wait is for ever. The products are those of
// ../grouped_mlp/grouped_mainloop.cuh: a producer warp fills a ring of stages, two consumer
// warpgroups take tiles of 128 by 192 in turn. Another warp takes and awaits tiles ahead of them.
// Of a symmetric product only tiles that reach below the diagonal are multiplied. An epilogue
// stores blocks of 8 x 8 on and below the diagonal, and each of those below it once more as its
// mirror image, transposed on its way through shared memory; so every element has one writer.
// Deterministic: a tile has one order, whoever takes it and whatever matrices are beside. Cost: of
// (n, m) matrices with n the smaller extent, five iterations are 14 products of n n n and two of n
// n m of which some 0.6 are multiplied, and two of n n m whole. A tile that is not filled costs as
// much as one that is.

#include "kernels/grouped_mlp/grouped_epilogue.cuh"
#include "kernels/grouped_mlp/grouped_mainloop.cuh"
#include "kernels/hopper/global_order.cuh"
#include "kernels/optimizer/newton_schulz_chain.hpp"

namespace stowage::kernels::optimizer {
namespace {

using namespace hopper;
using grouped::ceil_div;
using grouped::kDepth;
using grouped::kTileRows;
using grouped::StagedRows;

constexpr int kConsumerWarps = 8;
/// Tiles that a block has taken and not all of its warps have come to: few, so that blocks that
/// begin later get some.
constexpr int kKnown = 2;
/// Operands of one product; transposed: contiguous along the output.
template <bool kTransposedA, bool kTransposedB, int kTileWidth = kWidth>
struct Factors : grouped::Operands<kTransposedA, kTransposedB, kTileWidth,
                                   kConsumerWarps * StagedRows<kWidth>::kBytes> {
  static constexpr bool kFp16 = true;
};
using Plain = Factors<false, false>;
using NarrowPlain = Factors<false, false, kNarrow>;
using SecondAlong = Factors<false, true>;
using NarrowSecondAlong = Factors<false, true, kNarrow>;
using BothAlong = Factors<true, true>;
using NarrowBothAlong = Factors<true, true, kNarrow>;
using Sums = grouped::Sums<Plain>;
using Staged = StagedRows<kWidth>;

/// A tile of a product.
struct Tile {
  int product;  // -1: there are no more
  int matrix, row, column, width;
};

struct Shared : grouped::Ring<Plain> {
  alignas(128) unsigned char staging[kConsumerWarps][Staged::kBytes];
  Tile tiles[kKnown];
  Mbarrier given[kKnown], read[kKnown];
};

/// Tile `index` of a product's.
__device__ __forceinline__ Tile tile_of(const Product& p, int product, int index) {
  const int matrix = index / p.tiles, across = ceil_div(p.columns, kWidth);
  int local = index - matrix * p.tiles, down = 0, beside = across, reached = p.columns;
  if (p.lower) {
    while (local >= (beside = lower_across(down, across))) local -= beside, ++down;
    reached = min(reached, (down + 1) * kTileRows);
  } else {
    int column;
    grouped::place<16>(local, ceil_div(p.rows, kTileRows), across, down, column);
    local = column;
  }
  const int narrow = (beside * kWidth - reached) / (kWidth - kNarrow);  // the last ones
  const int behind = local - (beside - min(narrow, beside));            // the first narrow one
  return {product, matrix, down * kTileRows, local * kWidth - max(0, behind) * (kWidth - kNarrow),
          behind < 0 ? kWidth : kNarrow};
}

/// One thread: takes tiles, waits until what they read is done, and tells the other warps.
__device__ __forceinline__ void schedule(Shared& shared, const Chain& chain) {
  RingPosition<kKnown> place;
  for (int product = 0;; place.next()) {
    mbarrier_wait(&shared.read[place.stage], place.parity ^ 1U);
    const int index = atomicAdd(chain.next, 1);
    Tile tile{-1, 0, 0, 0, 0};
    if (index < chain.tiles) {
      while (product + 1 < chain.count && chain.products[product + 1].first <= index) ++product;
      const Product& p = chain.products[product];
      tile = tile_of(p, product, index - p.first);
      while (load_acquire(p.done + tile.matrix) < kConsumerWarps / 2 * p.after) {
      }
    }
    shared.tiles[place.stage] = tile;
    mbarrier_arrive(&shared.given[place.stage]);
    if (tile.product < 0) return;
  }
}

/// The tiles of a block, one after the other.
class Tiles {
 public:
  explicit __device__ __forceinline__ Tiles(Shared& shared) : shared_(shared) {}

  /// The next one, for the only thread that asks for its warp.
  __device__ __forceinline__ Tile next() {
    const Tile tile = wait();
    mbarrier_arrive(&shared_.read[place_.stage]);
    place_.next();
    return tile;
  }
  /// The same for all lanes of a warp.
  __device__ __forceinline__ Tile next_of_warp() {
    Tile tile = wait();
    tile.product = __shfl_sync(0xFFFFFFFFU, tile.product, 0);
    if (threadIdx.x % 32 == 0) mbarrier_arrive(&shared_.read[place_.stage]);
    place_.next();
    return tile;
  }

 private:
  __device__ __forceinline__ Tile wait() const {
    mbarrier_wait(&shared_.given[place_.stage], place_.parity);
    return shared_.tiles[place_.stage];
  }
  Shared& shared_;
  RingPosition<kKnown> place_;
};

template <bool kTransposed>
__device__ __forceinline__ void load(unsigned char* to, const CUtensorMap& map, Mbarrier* full,
                                     int panels, int panel_bytes, int at, int k, int matrix) {
  if constexpr (kTransposed) {
#pragma unroll
    for (int i = 0; i < panels; ++i)
      bulk_load_3d(to + i * panel_bytes, &map, full, at + 64 * i, k, matrix);
  } else {
    bulk_load_3d(to, &map, full, k, at, matrix);
  }
}

template <class O>
__device__ __forceinline__ void load_tile(Shared& shared, RingPosition<Plain::kStages>& at,
                                          const Chain& chain, const Product& p, const Tile& tile) {
  for (int k = 0; k < p.depth; k += kDepth) {
    mbarrier_wait(&shared.empty[at.stage], at.parity ^ 1U);
    Mbarrier* full = &shared.full[at.stage];
    mbarrier_arrive_expect_tx(full, O::kABytes + O::kBBytes);
    load<O::kTransA>(shared.a[at.stage], chain.maps[p.a], full, O::kHeight / 64, O::kPanelBytes,
                     tile.row, k, tile.matrix);
    load<O::kTransB>(shared.b[at.stage], chain.maps[O::kWidth == kWidth ? p.b : p.narrow_b], full,
                     O::kPanels, O::kPanelBytes, tile.column, k, tile.matrix);
    at.next();
  }
}

/// Calls body<operands of the tile>().
template <class Body>
__device__ __forceinline__ void with_operands(const Product& p, const Tile& tile, Body&& body) {
  const auto call = [&]<class Wide, class Narrow>() {
    tile.width == kWidth ? body.template operator()<Wide>() : body.template operator()<Narrow>();
  };
  if (p.along == Along::second)
    call.template operator()<SecondAlong, NarrowSecondAlong>();
  else if (p.along == Along::both)
    call.template operator()<BothAlong, NarrowBothAlong>();
  else
    call.template operator()<Plain, NarrowPlain>();
}

/// One thread: loads what tiles are made of.
__device__ __forceinline__ void produce(Shared& shared, const Chain& chain) {
  RingPosition<Plain::kStages> at;
  Tiles tiles(shared);
  for (Tile tile = tiles.next(); tile.product >= 0; tile = tiles.next()) {
    const Product& p = chain.products[tile.product];
    fence_proxy_async_global();
    with_operands(p, tile, [&]<class O>() { load_tile<O>(shared, at, chain, p, tile); });
  }
}

/// 16 rows of a warp in a tile.
struct WarpRows {
  int row, column;      // of the matrix
  int width;            // of the tile
  std::int64_t matrix;  // elements before it
};

/// Whether the result has a piece of 8 elements here; of a symmetric one on or below the diagonal.
__device__ __forceinline__ bool has_piece(const WarpRows& at, const Product& p, int row,
                                          int column) {
  const int i = at.row + row, j = at.column + column;
  return column < at.width && i < p.rows && j < p.columns && (!p.lower || j / 8 <= i / 8);
}

/// The sums, A A, become a I + b A + c A A. Six pieces of A are read at once, since each wait is
/// for memory.
__device__ __forceinline__ void make_polynomial(const Staged& staged, const WarpRows& at,
                                                const Product& p, const Chain& chain) {
  constexpr int kRows = 2, kPieces = ceil_div(kWidth, 64);
#pragma unroll 1
  for (int first = 0; first < 16; first += 4 * kRows) {
    uint4 gram[kRows][kPieces];
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int q = 0; q < kPieces; ++q) {
        const int row = staged.first_row() + first + 4 * r, column = staged.first_column() + 64 * q;
        if (!has_piece(at, p, row, column)) continue;
        const std::int64_t place =
            static_cast<std::int64_t>(at.row + row) * p.columns + at.column + column;
        gram[r][q] = __ldcg(reinterpret_cast<const uint4*>(p.gram + at.matrix + place));
      }
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int q = 0; q < kPieces; ++q) {
        const int row = staged.first_row() + first + 4 * r, column = staged.first_column() + 64 * q;
        if (!has_piece(at, p, row, column)) continue;
        const int ahead = at.row + row - at.column - column;  // of the diagonal
        uint4& here = staged.piece(row, column);
        const std::uint32_t given[4] = {gram[r][q].x, gram[r][q].y, gram[r][q].z, gram[r][q].w};
        std::uint32_t words[4] = {here.x, here.y, here.z, here.w};
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float2 sum = unpack_f16(words[e]), one = unpack_f16(given[e]);
          words[e] = pack_f16(
              fmaf(chain.c, sum.x, fmaf(chain.b, one.x, ahead == 2 * e ? chain.a : 0.0F)),
              fmaf(chain.c, sum.y, fmaf(chain.b, one.y, ahead == 2 * e + 1 ? chain.a : 0.0F)));
        }
        here = {words[0], words[1], words[2], words[3]};
      }
  }
}

__device__ __forceinline__ void store(const Staged& staged, const WarpRows& at, const Product& p) {
#pragma unroll 1
  for (int i = 0; i < 16; i += 4) {
    const int row = staged.first_row() + i;
    for (int column = staged.first_column(); column < at.width; column += 64)
      if (has_piece(at, p, row, column))
        *reinterpret_cast<uint4*>(p.out + at.matrix +
                                  static_cast<std::int64_t>(at.row + row) * p.columns + at.column +
                                  column) = staged.piece(row, column);
  }
}

/// The blocks below the diagonal, transposed: two lanes a column, 8 rows each, together a sector of
/// memory.
__device__ __forceinline__ void store_mirrored(const Staged& staged, const WarpRows& at,
                                               const Product& p) {
  __syncwarp();
  const int lane = grouped::thread_index() % 32, half = lane % 2 * 8;
#pragma unroll 1
  for (int column = lane / 2; column < at.width; column += 16) {
    const int i = at.row + half, j = at.column + column;
    if (i >= p.rows || j / 8 >= i / 8) continue;
    std::uint32_t pairs[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const auto element = [&](int row) -> std::uint32_t {
        return reinterpret_cast<const std::uint16_t*>(&staged.piece(half + row, 0))[column];
      };
      pairs[e] = element(2 * e) | element(2 * e + 1) << 16U;
    }
    *reinterpret_cast<uint4*>(p.out + at.matrix + static_cast<std::int64_t>(j) * p.columns + i) =
        uint4{pairs[0], pairs[1], pairs[2], pairs[3]};
  }
}

/// One row block's sums, rounded: bf16 if they are the last.
__device__ __forceinline__ void stage(const Staged& staged, const float (&sums)[kWidth / 2],
                                      const Product& p) {
  std::uint32_t pairs[kWidth / 4];
  const bool last = p.finish == Finish::last;
#pragma unroll
  for (int i = 0; i < kWidth / 4; ++i)
    pairs[i] = last ? pack_bf16(p.scale * sums[2 * i], p.scale * sums[2 * i + 1])
                    : pack_f16(sums[2 * i], sums[2 * i + 1]);
  staged.stage(pairs);
}

__device__ __forceinline__ void finish(Shared& shared, int group, const Chain& chain,
                                       const Product& p, const Tile& tile, const Sums& sums) {
  const int thread = grouped::thread_index(), warp = thread / 32 % 4;
  const Staged staged(shared.staging[group * 4 + warp], thread % 32);
  WarpRows at{tile.row + warp * 16, tile.column, tile.width,
              static_cast<std::int64_t>(tile.matrix) * p.rows * p.columns};
#pragma unroll
  for (int block = 0; block < Plain::kBlocks; ++block, at.row += 64) {
    stage(staged, sums[block], p);
    if (p.finish == Finish::polynomial) make_polynomial(staged, at, p, chain);
    store(staged, at, p);
    if (p.lower) store_mirrored(staged, at, p);
  }
  // What is stored is read by the copy engines of others.
  fence_proxy_async_global();
  __syncwarp();
  if (thread % 32 == 0) add_release(p.done + tile.matrix, 1);
}

__device__ __forceinline__ void consume(Shared& shared, int group, const Chain& chain) {
  grouped::Turns<Plain> turns(shared, group);
  Tiles tiles(shared);
  for (Tile tile = tiles.next_of_warp(); tile.product >= 0; tile = tiles.next_of_warp()) {
    const Product& p = chain.products[tile.product];
    const int steps = ceil_div(p.depth, kDepth);
    if (!turns.take(steps)) continue;
    Sums sums;
    with_operands(p, tile, [&]<class O>() {
      if constexpr (O::kWidth == kWidth) {
        grouped::multiply<O>(shared, turns, steps, true, sums);
      } else {
        grouped::Sums<O> narrow;
        grouped::multiply<O>(shared, turns, steps, true, narrow);
#pragma unroll
        for (int block = 0; block < O::kBlocks; ++block)
#pragma unroll
          for (int i = 0; i < kWidth / 2; ++i)
            sums[block][i] = i < kNarrow / 2 ? narrow[block][i] : 0;
      }
    });
    finish(shared, group, chain, p, tile, sums);
  }
}

__global__ void __maxnreg__(Plain::Registers::kLaunch)
    newton_schulz_kernel(const __grid_constant__ Chain chain) {
  extern __shared__ __align__(1024) unsigned char raw[];
  auto& shared = *reinterpret_cast<Shared*>(raw);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kKnown; ++i) {
      mbarrier_init(&shared.given[i], 1);
      mbarrier_init(&shared.read[i], kConsumerWarps + 1);  // the producer, too
    }
  }
  grouped::init_barriers(shared);
  __syncthreads();
  const int group = uniform_warp_index() / 4;
  if (group == 0) {
    setmaxnreg_dec<Plain::Registers::kProducer>();
    if (uniform_warp_index() == 0 && elect_one()) produce(shared, chain);
    if (uniform_warp_index() == 1 && elect_one()) schedule(shared, chain);
  } else {
    setmaxnreg_inc<Plain::Registers::kConsumer>();
    consume(shared, group - 1, chain);
  }
}

}  // namespace

int launch_chain(const Chain& chain, int blocks, void* stream) {
  static_assert(sizeof(Shared) <= grouped::kSharedBesideOthers);
  static const cudaError_t raised = cudaFuncSetAttribute(
      newton_schulz_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared));
  if (raised != cudaSuccess) return raised;
  newton_schulz_kernel<<<std::min(blocks, chain.tiles), grouped::kThreads, sizeof(Shared),
                         static_cast<cudaStream_t>(stream)>>>(chain);
  return cudaGetLastError();
}

}  // namespace stowage::kernels::optimizer
