// The products of Newton-Schulz iterations on Hopper (newton_schulz.hpp).
//
// Layout: matrices of one shape, dense, one behind the other, bf16; extents are multiples of 8.
// Design: persistent blocks with the products of ../grouped_mlp/grouped_mainloop.cuh: a producer
// warp fills a ring of stages, two consumer warpgroups take the tiles of 128 by 176 in turn. Of a
// symmetric product only tiles that reach below the diagonal are multiplied. An epilogue stores
// blocks of 8 x 8 on and below the diagonal, and each of those below it once more as its mirror
// image, transposed on its way through shared memory; so every element has one writer. The
// polynomial is made there from A and the sums. Numerics: products and sums in fp32, in the order
// of the contraction, rounded once; the polynomial from rounded sums, in fp32. Deterministic: a
// tile has one owner and one order, whatever matrices are beside. Cost: of (n, m) matrices with n
// the smaller extent, an iteration multiplies some 0.65 of 2 n n m and of 2 n n n FLOPs, and
// 2 n n m whole; A is written and read three times, X read twice and written.
// Limits: n below 128 would waste most of a tile (newton_schulz.cpp takes other products).

#include "kernels/grouped_mlp/grouped_epilogue.cuh"
#include "kernels/grouped_mlp/grouped_mainloop.cuh"
#include "kernels/hopper/tensor_map.hpp"
#include "kernels/optimizer/newton_schulz_launch.hpp"

namespace stowage::kernels::optimizer {
namespace {

using namespace hopper;
using execution::Bf16;
using grouped::ceil_div;
using grouped::kDepth;
using grouped::kTileRows;
using grouped::Piece;
using grouped::StagedRows;

constexpr int kWidth = 176;

/// Operands of one product; transposed: contiguous along the output.
template <bool kTransposedA, bool kTransposedB>
using Factors =
    grouped::Operands<kTransposedA, kTransposedB, kWidth, 8 * StagedRows<kWidth>::kBytes>;

template <class O>
struct Shared : grouped::Ring<O> {
  alignas(128) unsigned char staging[8][StagedRows<kWidth>::kBytes];
};

struct Maps {
  CUtensorMap a, b;
};

/// A product of each matrix of a batch.
struct Product {
  int count;
  int rows, columns, depth;  // of the result, and contracted
  int tiles;                 // of one matrix
  bool lower;                // only those that reach below the diagonal
  std::uint16_t* out;        // (count, rows, columns)
};

/// scale (a I + b gram + c sum).
struct Polynomial {
  const std::uint16_t* gram;
  float a, b, c, scale;
};

/// Tiles beside each other in a row of tiles of a symmetric product.
__host__ __device__ constexpr int lower_across(int down, int across) {
  const int reached = ((down + 1) * kTileRows - 1) / kWidth + 1;
  return reached < across ? reached : across;
}

/// The tiles of all matrices: tile i of them belongs to block i mod gridDim.x.
class Tiles {
 public:
  explicit __device__ __forceinline__ Tiles(const Product& p)
      : p_(p), index_(static_cast<int>(blockIdx.x)) {}

  __device__ __forceinline__ bool more() const { return index_ < p_.count * p_.tiles; }
  __device__ __forceinline__ void next() { index_ += static_cast<int>(gridDim.x); }

  struct Place {
    int matrix, row, column;
  };
  __device__ __forceinline__ Place get() const {
    const int matrix = index_ / p_.tiles, across = ceil_div(p_.columns, kWidth);
    int local = index_ - matrix * p_.tiles, down = 0;
    if (p_.lower) {
      for (int width; local >= (width = lower_across(down, across)); ++down) local -= width;
    } else {
      int column;
      grouped::place<16>(local, ceil_div(p_.rows, kTileRows), across, down, column);
      local = column;
    }
    return {matrix, down * kTileRows, local * kWidth};
  }

 private:
  const Product& p_;
  int index_;
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
__device__ __forceinline__ void produce(Shared<O>& shared, const Maps& maps, const Product& p) {
  if (!elect_one()) return;
  RingPosition<O::kStages> at;
  for (Tiles tiles(p); tiles.more(); tiles.next()) {
    const Tiles::Place tile = tiles.get();
    for (int k = 0; k < p.depth; k += kDepth) {
      mbarrier_wait(&shared.empty[at.stage], at.parity ^ 1U);
      Mbarrier* full = &shared.full[at.stage];
      mbarrier_arrive_expect_tx(full, O::kABytes + O::kBBytes);
      load<O::kTransA>(shared.a[at.stage], maps.a, full, O::kHeight / 64, O::kPanelBytes, tile.row,
                       k, tile.matrix);
      load<O::kTransB>(shared.b[at.stage], maps.b, full, O::kPanels, O::kPanelBytes, tile.column, k,
                       tile.matrix);
      at.next();
    }
  }
}

/// 16 rows of a warp in a tile, whose sums are staged.
struct WarpRows {
  int row, column;     // of the matrix
  std::uint16_t* out;  // of the matrix
};

/// Calls body(row, column) for the pieces of 8 elements of this lane that the result has.
template <class Body>
__device__ __forceinline__ void each_piece(const StagedRows<kWidth>& staged, const WarpRows& at,
                                           const Product& p, Body&& body) {
#pragma unroll 1
  for (int i = 0; i < 16; i += 4) {
    const int row = staged.first_row() + i;
    for (int column = staged.first_column(); column < kWidth; column += 64)
      if (at.row + row < p.rows && at.column + column < p.columns) body(row, column);
  }
}

/// The result as it is.
struct Store {
  static __device__ __forceinline__ void apply(const StagedRows<kWidth>& staged, const WarpRows& at,
                                               const Product& p, const Polynomial&) {
    each_piece(staged, at, p, [&](int row, int column) {
      *reinterpret_cast<uint4*>(at.out + static_cast<std::int64_t>(at.row + row) * p.columns +
                                at.column + column) = staged.piece(row, column);
    });
  }
};

/// A symmetric result, of its lower blocks; kPolynomial: made into the polynomial first.
template <bool kPolynomial>
struct StoreSymmetric {
  static __device__ __forceinline__ void apply(const StagedRows<kWidth>& staged, const WarpRows& at,
                                               const Product& p, const Polynomial& q) {
    const int n = p.rows;
    const std::int64_t matrix = at.out - p.out;
    each_piece(staged, at, p, [&](int row, int column) {
      const int i = at.row + row, j = at.column + column;
      if (j / 8 > i / 8) return;
      const std::int64_t place = static_cast<std::int64_t>(i) * n + j;
      uint4& here = staged.piece(row, column);
      if constexpr (kPolynomial) {
        Piece sum(here);
        const Piece gram(*reinterpret_cast<const uint4*>(q.gram + matrix + place));
#pragma unroll
        for (int e = 0; e < 8; ++e)
          sum.values[e] = q.scale * fmaf(q.c, sum.values[e],
                                         fmaf(q.b, gram.values[e], i == j + e ? q.a : 0.0F));
        here = sum.bits();
      }
      *reinterpret_cast<uint4*>(at.out + place) = here;
    });
    __syncwarp();
    // Two lanes a column, 8 rows each: together a sector of memory.
    const int lane = static_cast<int>(threadIdx.x % 32), half = lane % 2 * 8;
#pragma unroll 1
    for (int column = lane / 2; column < kWidth; column += 16) {
      const int i = at.row + half, j = at.column + column;
      if (i >= n || j / 8 >= i / 8) continue;
      std::uint32_t pairs[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const auto element = [&](int row) -> std::uint32_t {
          return reinterpret_cast<const std::uint16_t*>(&staged.piece(half + row, 0))[column];
        };
        pairs[e] = element(2 * e) | element(2 * e + 1) << 16U;
      }
      *reinterpret_cast<uint4*>(at.out + static_cast<std::int64_t>(j) * n + i) =
          uint4{pairs[0], pairs[1], pairs[2], pairs[3]};
    }
  }
};

template <class O, class Epilogue>
__device__ __forceinline__ void consume(Shared<O>& shared, int group, const Product& p,
                                        const Polynomial& q) {
  grouped::Turns<O> turns(shared, group);
  const int steps = ceil_div(p.depth, kDepth);
  for (Tiles tiles(p); tiles.more(); tiles.next()) {
    if (!turns.take(steps)) continue;
    grouped::Sums<O> sums;
    grouped::multiply<O>(shared, turns, steps, true, sums);
    const Tiles::Place tile = tiles.get();
    const int thread = grouped::thread_index(), warp = thread / 32 % 4;
    const StagedRows<kWidth> staged(shared.staging[group * 4 + warp], thread % 32);
#pragma unroll
    for (int block = 0; block < O::kBlocks; ++block) {
      staged.stage(sums[block], false);
      Epilogue::apply(staged,
                      {tile.row + block * 64 + warp * 16, tile.column,
                       p.out + static_cast<std::int64_t>(tile.matrix) * p.rows * p.columns},
                      p, q);
    }
  }
}

template <class O, class Epilogue>
__global__ void __maxnreg__(O::Registers::kLaunch)
    newton_schulz_kernel(const __grid_constant__ Maps maps, const __grid_constant__ Product p,
                         const __grid_constant__ Polynomial q) {
  extern __shared__ __align__(1024) unsigned char raw[];
  auto& shared = *reinterpret_cast<Shared<O>*>(raw);
  if (threadIdx.x == 0) {
    prefetch_tensor_map(&maps.a);
    prefetch_tensor_map(&maps.b);
  }
  grouped::init_barriers(shared);
  __syncthreads();
  const int group = uniform_warp_index() / 4;
  if (group == 0) {
    setmaxnreg_dec<O::Registers::kProducer>();
    if (uniform_warp_index() == 0) produce<O>(shared, maps, p);
  } else {
    setmaxnreg_inc<O::Registers::kConsumer>();
    consume<O, Epilogue>(shared, group - 1, p, q);
  }
}

/// Matrices (count, rows, columns) in boxes of 64 columns and some rows.
CUtensorMap map_of(const void* x, std::int64_t count, std::int64_t rows, std::int64_t columns,
                   int box_rows) {
  const auto extent = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  const std::uint64_t extents[] = {extent(columns), extent(rows), extent(count)};
  const std::uint64_t strides[] = {extents[0] * 2, extents[0] * extents[1] * 2};
  const std::uint32_t box[] = {64, static_cast<std::uint32_t>(box_rows), 1};
  return make_tensor_map(TensorMapType::bf16, x, extents, strides, box, Swizzle::b128);
}

/// A matrix as a factor: of (rows, columns) the rows are contracted if it is transposed.
struct Factor {
  const Bf16* data;
  std::int64_t rows, columns;
};

template <class O, class Epilogue>
cudaError_t multiply(std::int64_t count, const Factor& a, const Factor& b, bool lower,
                     const Polynomial& q, Bf16* out, int blocks, cudaStream_t stream) {
  constexpr int kBytes = sizeof(Shared<O>);
  static_assert(kBytes <= grouped::kSharedBesideOthers);
  const auto kernel = newton_schulz_kernel<O, Epilogue>;
  static const cudaError_t raised =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (raised != cudaSuccess) return raised;
  Product p{};
  p.count = static_cast<int>(count);
  p.rows = static_cast<int>(O::kTransA ? a.columns : a.rows);
  p.columns = static_cast<int>(O::kTransB ? b.columns : b.rows);
  p.depth = static_cast<int>(O::kTransA ? a.rows : a.columns);
  p.lower = lower;
  p.out = reinterpret_cast<std::uint16_t*>(out);
  const int down = ceil_div(p.rows, kTileRows), across = ceil_div(p.columns, kWidth);
  for (int i = 0; i < down; ++i) p.tiles += lower ? lower_across(i, across) : across;
  const Maps maps{map_of(a.data, count, a.rows, a.columns, O::kTransA ? kDepth : kTileRows),
                  map_of(b.data, count, b.rows, b.columns, O::kTransB ? kDepth : kWidth)};
  kernel<<<std::min(blocks, p.count * p.tiles), grouped::kThreads, kBytes, stream>>>(maps, p, q);
  return cudaGetLastError();
}

}  // namespace

int launch_gram_sm90(const NewtonSchulz& op, const Bf16* x, Bf16* gram, int blocks, void* stream) {
  const Factor all{x, op.rows, op.columns};
  const auto on = static_cast<cudaStream_t>(stream);
  return op.rows <= op.columns ? multiply<Factors<false, false>, StoreSymmetric<false>>(
                                     op.count, all, all, true, {}, gram, blocks, on)
                               : multiply<Factors<true, true>, StoreSymmetric<false>>(
                                     op.count, all, all, true, {}, gram, blocks, on);
}

int launch_polynomial_sm90(const NewtonSchulz& op, const Bf16* gram, Bf16* polynomial, double scale,
                           int blocks, void* stream) {
  const std::int64_t n = op.smaller();
  const Factor all{gram, n, n};
  const auto [a, b, c] = op.options.coefficients;
  const Polynomial q{reinterpret_cast<const std::uint16_t*>(gram), static_cast<float>(a),
                     static_cast<float>(b), static_cast<float>(c), static_cast<float>(scale)};
  return multiply<Factors<false, false>, StoreSymmetric<true>>(
      op.count, all, all, true, q, polynomial, blocks, static_cast<cudaStream_t>(stream));
}

int launch_step_sm90(const NewtonSchulz& op, const Bf16* polynomial, const Bf16* x, Bf16* y,
                     int blocks, void* stream) {
  const std::int64_t n = op.smaller();
  const Factor some{polynomial, n, n}, all{x, op.rows, op.columns};
  const auto on = static_cast<cudaStream_t>(stream);
  return op.rows <= op.columns
             ? multiply<Factors<false, true>, Store>(op.count, some, all, false, {}, y, blocks, on)
             : multiply<Factors<false, false>, Store>(op.count, all, some, false, {}, y, blocks,
                                                      on);
}

}  // namespace stowage::kernels::optimizer
