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
// warpgroups take tiles of 128 by 192 in turn. What L2 can read bounds such tiles, so two blocks, a
// cluster, take neighbours of a row: each loads half of the 128 rows for both. Another warp of the
// cluster takes and awaits pairs of tiles ahead of them.
// Of a symmetric product only tiles that reach below the diagonal are multiplied. An epilogue
// stores blocks of 8 x 8 on and below the diagonal, and each of those below it once more as its
// mirror image, transposed on its way through shared memory; so every element has one writer.
// Deterministic: a tile has one order, whoever takes it and whatever matrices are beside. Cost: of
// (n, m) matrices with n the smaller extent, five iterations are 14 products of n n n and two of n
// n m of which some 0.6 are multiplied, and two of n n m whole. A tile that is not filled costs as
// much as one that is.

#include "kernels/grouped_mlp/grouped_epilogue.cuh"
#include "kernels/grouped_mlp/grouped_mainloop.cuh"
#include "kernels/hopper/cluster.cuh"
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
                                   kConsumerWarps * StagedRows<kWidth>::kBytes, false, kTileRows,
                                   ceil_div(kWidth, 64) * kDepth * 128> {
  static constexpr bool kFp16 = true;
  static constexpr int kSharers = kAcross;
};
using Plain = Factors<false, false>;
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

/// The tile that a block has of pair `index` of a product's.
__device__ __forceinline__ Tile tile_of(const Product& p, int product, int index, int block) {
  if (p.apart) {
    const int matrix = kAcross * index + block;
    return {product, min(matrix, p.count - 1), matrix < p.count ? 0 : kTileRows, 0, kNarrow};
  }
  const int matrix = index / p.pairs;
  int pair = index - matrix * p.pairs, down = 0;
  PairsAcross across(p.lower ? lower_reach(0, p.columns) : p.columns);
  if (p.lower)
    while (pair >= across.count) {
      pair -= across.count;
      across = PairsAcross(lower_reach(++down, p.columns));
    }
  else
    grouped::place<16>(pair, ceil_div(p.rows, kTileRows), across.count, down, pair);
  const int width = across.width(pair);
  return {product, matrix, down * kTileRows, across.column(pair) + block * width, width};
}

/// One thread of a cluster: takes pairs of tiles, waits until what they read is done, and tells the
/// other warps of both blocks.
__device__ __forceinline__ void schedule(Shared& shared, const Chain& chain) {
  RingPosition<kKnown> place;
  for (int product = 0;; place.next()) {
    mbarrier_wait(&shared.read[place.stage], place.parity ^ 1U);
    const int index = atomicAdd(chain.next, 1);
    const bool ends = index >= chain.pairs;
    while (product + 1 < chain.count && chain.products[product + 1].first <= index) ++product;
    const Product& p = chain.products[product];
    for (int block = 0; block < kAcross; ++block) {
      const Tile tile = ends ? Tile{-1, 0, 0, 0, 0} : tile_of(p, product, index - p.first, block);
      if (!ends && (block == 0 || p.apart))
        while (load_acquire(p.done + tile.matrix) < kConsumerWarps / 2 * p.after) {
        }
      Tile& to = shared.tiles[place.stage];
      st_shared_cluster(&to.product, block, tile.product);
      st_shared_cluster(&to.matrix, block, tile.matrix);
      st_shared_cluster(&to.row, block, tile.row);
      st_shared_cluster(&to.column, block, tile.column);
      st_shared_cluster(&to.width, block, tile.width);
    }
    fence_cluster();
    for (int block = 0; block < kAcross; ++block)
      mbarrier_arrive_cluster(&shared.given[place.stage], block);
    if (ends) return;
  }
}

/// The tiles of a block, one after the other.
class Tiles {
 public:
  explicit __device__ __forceinline__ Tiles(Shared& shared) : shared_(shared) {}

  /// The next one, for the only thread that asks for its warp.
  __device__ __forceinline__ Tile next() {
    const Tile tile = wait();
    take();
    return tile;
  }
  /// The same for all lanes of a warp.
  __device__ __forceinline__ Tile next_of_warp() {
    Tile tile = wait();
    for (int* of : {&tile.product, &tile.matrix, &tile.row, &tile.column, &tile.width})
      *of = __shfl_sync(0xFFFFFFFFU, *of, 0);
    if (threadIdx.x % 32 == 0)
      take();
    else
      ++taken_;
    return tile;
  }

 private:
  __device__ __forceinline__ Tile wait() const {
    mbarrier_wait_cluster(&shared_.given[taken_ % kKnown], taken_ / kKnown % 2);
    return shared_.tiles[taken_ % kKnown];
  }
  __device__ __forceinline__ void take() {
    mbarrier_arrive_cluster(&shared_.read[taken_++ % kKnown], 0);
  }
  Shared& shared_;
  std::uint32_t taken_ = 0;
};

/// The coordinates of a box: `at` along the output, `k` along the contraction.
template <bool kTransposed, class Load>
__device__ __forceinline__ void with_place(int at, int k, Load&& load) {
  kTransposed ? load(at, k) : load(k, at);
}

/// Of a pair of one matrix this block's half of the rows goes to both blocks of the cluster: what
/// is loaded into one has been released by both.
template <class O>
__device__ __forceinline__ void load_tile(Shared& shared, RingPosition<Plain::kStages>& at,
                                          const Chain& chain, const Product& p, const Tile& tile) {
  static_assert(kTileRows == O::kSharers * kBox && kDepth == kBox && O::kWidth % kBox == 0);
  constexpr int kBoxBytes = kBox * kBox * 2;
  const int rank = static_cast<int>(cluster_block_rank());
  for (int k = 0; k < p.depth; k += kDepth) {
    mbarrier_wait(&shared.empty[at.stage], at.parity ^ 1U);
    Mbarrier* full = &shared.full[at.stage];
    mbarrier_arrive_expect_tx(full, O::kABytes + O::kBBytes);
    for (int half = 0; half < kAcross; ++half) {
      if (!p.apart && half != rank) continue;
      with_place<O::kTransA>(tile.row + half * kBox, k, [&](int c0, int c1) {
        unsigned char* const to = shared.a[at.stage] + half * kBoxBytes;
        if (p.apart)
          bulk_load_3d(to, &chain.maps[p.a], full, c0, c1, tile.matrix);
        else
          bulk_load_3d_multicast(to, &chain.maps[p.a], full, c0, c1, tile.matrix,
                                 (1U << kAcross) - 1);
      });
    }
#pragma unroll
    for (int i = 0; i < O::kWidth / kBox; ++i)
      with_place<O::kTransB>(tile.column + i * kBox, k, [&](int c0, int c1) {
        bulk_load_3d(shared.b[at.stage] + i * kBoxBytes, &chain.maps[p.b], full, c0, c1,
                     tile.matrix);
      });
    at.next();
  }
}

/// Calls body<operands of the tile>().
template <class Body>
__device__ __forceinline__ void with_operands(const Product& p, const Tile& tile, Body&& body) {
  const auto of = [&]<bool kTransposedA, bool kTransposedB>() {
    tile.width == kWidth ? body.template operator()<Factors<kTransposedA, kTransposedB>>()
                         : body.template operator()<Factors<kTransposedA, kTransposedB, kNarrow>>();
  };
  if (p.along == Along::second)
    of.template operator()<false, true>();
  else if (p.along == Along::both)
    of.template operator()<true, true>();
  else
    of.template operator()<false, false>();
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

__device__ __forceinline__ void finish(Shared& shared, const Chain& chain, const Product& p,
                                       const Tile& tile, const Sums& sums) {
  const int thread = grouped::thread_index(), warp = thread / 32 - 4;
  const Staged staged(shared.staging[warp], thread % 32);
  WarpRows at{tile.row + warp % 4 * 16, tile.column, tile.width,
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
  if (thread % 32 == 0 && tile.row < p.rows) add_release(p.done + tile.matrix, 1);
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
    finish(shared, chain, p, tile, sums);
  }
}

__global__ void __cluster_dims__(kAcross) __maxnreg__(Plain::Registers::kLaunch)
    newton_schulz_kernel(const __grid_constant__ Chain chain) {
  extern __shared__ __align__(1024) unsigned char raw[];
  auto& shared = *reinterpret_cast<Shared*>(raw);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kKnown; ++i) {
      mbarrier_init(&shared.given[i], 1);
      mbarrier_init(&shared.read[i], kAcross * (kConsumerWarps + 1));  // producers, too
    }
  }
  grouped::init_barriers(shared);
  cluster_arrive();
  cluster_wait();
  const int group = uniform_warp_index() / 4;
  if (group == 0) {
    setmaxnreg_dec<Plain::Registers::kProducer>();
    if (uniform_warp_index() == 0 && elect_one()) produce(shared, chain);
    if (uniform_warp_index() == 1 && cluster_block_rank() == 0 && elect_one())
      schedule(shared, chain);
  } else {
    setmaxnreg_inc<Plain::Registers::kConsumer>();
    consume(shared, group - 1, chain);
  }
  // None ends while the other block may arrive at its barriers.
  __syncwarp();
  cluster_arrive();
  cluster_wait();
}

}  // namespace

int launch_chain(const Chain& chain, int blocks, void* stream) {
  static_assert(sizeof(Shared) <= grouped::kSharedBesideOthers);
  static const cudaError_t raised = cudaFuncSetAttribute(
      newton_schulz_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared));
  if (raised != cudaSuccess) return raised;
  const int clusters = std::min(blocks / kAcross, chain.pairs);
  newton_schulz_kernel<<<kAcross * clusters, grouped::kThreads, sizeof(Shared),
                         static_cast<cudaStream_t>(stream)>>>(chain);
  return cudaGetLastError();
}

}  // namespace stowage::kernels::optimizer
