#pragma once

#include <type_traits>

#include "kernels/grouped_mlp/grouped_epilogue.cuh"
#include "kernels/grouped_mlp/grouped_mainloop.cuh"

/// The kernel of the products over rows, y = x w[e]^T and dx = dy w[e], with an epilogue that takes
/// the sums of a warp in a tile: `apply(sums, place, staged rows, parameters of both)`.
namespace stowage::kernels::grouped {

/// The ring, and rows on their way out, of each consumer warp.
template <class O>
struct RowsShared : Ring<O> {
  alignas(128) unsigned char staging[8][StagedRows<O::kWidth>::kBytes];
};

/// Operands of y = x w[e]^T or, transposed, dx = dy w[e], beside those rows. Tall tiles stand among
/// the others, or, if kNarrow is not 0, some that are only so wide: with both, finding them cost as
/// much as they saved.
template <bool kTransposed, int kWidth, bool kGated = false, int kNarrow = 0>
struct RowsOperands : Operands<false, kTransposed, kWidth, 8 * StagedRows<kWidth>::kBytes, kGated,
                               kTileRows, kNarrow == 0 ? kTallRows * 128 : 0> {
  static_assert(kNarrow == 0 || kTransposed, "the box of w is as wide as a flat tile");
  using Tall = std::conditional_t<
      kNarrow == 0, Operands<false, kTransposed, kTallWidth, 0, kGated, kTallRows>, RowsOperands>;
  using Narrow =
      std::conditional_t<(kNarrow > 0), Operands<false, kTransposed, kNarrow, 0>, RowsOperands>;
  using Tiles = RowTiles<RowsOperands, Tall, kNarrow>;
};

/// The operands of a tile of some shape among those of `O`.
template <class O, Shape kShape>
using OfShape =
    std::conditional_t<kShape == Shape::tall, typename O::Tall,
                       std::conditional_t<kShape == Shape::narrow, typename O::Narrow, O>>;

/// The rows of a warp in one output tile: 16, or as many in each of its blocks of 64.
struct WarpRows {
  std::int64_t row;  // the first of them, in the whole matrix
  int rows;          // that belong to the expert, from this row on; may be less than one
  int column;
  int strip;  // which tile from the left
};

/// An epilogue that takes the blocks of a tile one by one: `apply(sums of 16 rows, ..)`.
template <class Rows>
struct EachBlock {
  using Parameters = typename Rows::Parameters;

  template <int kBlocks, int kWidth>
  static __device__ __forceinline__ void apply(const float (&sums)[kBlocks][kWidth / 2],
                                               const WarpRows& at, const StagedRows<kWidth>& staged,
                                               const RowsParameters& p, const Parameters& e) {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      Rows::apply(sums[i], {at.row + i * 64, at.rows - i * 64, at.column, at.strip}, staged, p, e);
    }
  }
};

/// Loads the operands of the current tile, of this shape.
template <Shape kShape, class O>
__device__ __forceinline__ void produce_tile(RowsShared<O>& shared, RingPosition<O::kStages>& at,
                                             const typename O::Tiles& tiles,
                                             const CUtensorMap& x_map, const CUtensorMap& w_map,
                                             const RowsParameters& p) {
  using P = OfShape<O, kShape>;
  static_assert(P::kABytes <= (P::kHeight > O::kHeight ? O::kBRoom : O::kABytes));
  static_assert(P::kBBytes <= (P::kHeight > O::kHeight ? O::kABytes : O::kBRoom));
  const Tile tile = tiles.template get<kShape>(p.columns);
  for (int k = 0; k < p.depth; k += kDepth) {
    mbarrier_wait(&shared.empty[at.stage], at.parity ^ 1U);
    Mbarrier* full = &shared.full[at.stage];
    mbarrier_arrive_expect_tx(full, P::kABytes + P::kBBytes);
    bulk_load_2d(a_of<P>(shared, at.stage), &x_map, full, k, tile.begin + tile.row);
    unsigned char* b = b_of<P>(shared, at.stage);
    if constexpr (P::kTransB) {
#pragma unroll
      for (int i = 0; i < P::kPanels; ++i) {
        bulk_load_3d(b + i * P::kPanelBytes, &w_map, full, tile.column + 64 * i, k, tile.expert);
      }
    } else {
      bulk_load_3d(b, &w_map, full, k, tile.column, tile.expert);
      if constexpr (P::kGated) {
        bulk_load_3d(b + P::kBBytes / 2, &w_map, full, k, p.columns + tile.column, tile.expert);
      }
    }
    at.next();
  }
}

template <class O>
__device__ __forceinline__ void produce_rows(RowsShared<O>& shared, const RowsMaps& maps,
                                             const RowsParameters& p) {
  if (!elect_one()) return;
  typename O::Tiles tiles(shared.tables);
  RingPosition<O::kStages> at;
  for (; tiles.more(p.experts); tiles.next()) {
    if (tiles.tall(p.columns))
      produce_tile<Shape::tall>(shared, at, tiles, maps.tall_x, maps.tall_w, p);
    else if (tiles.narrow(p.columns))
      produce_tile<Shape::narrow>(shared, at, tiles, maps.x, maps.w, p);
    else
      produce_tile<Shape::flat>(shared, at, tiles, maps.x, maps.w, p);
  }
}

/// Makes the current tile, of this shape.
template <Shape kShape, class Epilogue, class O>
__device__ __forceinline__ void consume_tile(RowsShared<O>& shared, Turns<O>& turns, int group,
                                             const typename O::Tiles& tiles,
                                             const RowsParameters& p,
                                             const typename Epilogue::Parameters& e) {
  using P = OfShape<O, kShape>;
  Sums<P> sums;
  multiply<P>(shared, turns, ceil_div(p.depth, kDepth), true, sums);
  const Tile tile = tiles.template get<kShape>(p.columns);
  const int thread = thread_index();
  const int warp = thread / 32 % 4, row = tile.row + warp * 16;
  const StagedRows<P::kWidth> staged(shared.staging[group * 4 + warp], thread % 32);
  Epilogue::apply(sums, {tile.begin + row, tile.rows - row, tile.column, tile.strip}, staged, p, e);
}

template <class O, class Epilogue>
__device__ __forceinline__ void consume_rows(RowsShared<O>& shared, int group,
                                             const RowsParameters& p,
                                             const typename Epilogue::Parameters& e) {
  typename O::Tiles tiles(shared.tables);
  Turns<O> turns(shared, group);
  for (; tiles.more(p.experts); tiles.next()) {
    const bool tall = tiles.tall(p.columns);
    if (!turns.take(ceil_div(p.depth, kDepth))) continue;
    if (tall)
      consume_tile<Shape::tall, Epilogue>(shared, turns, group, tiles, p, e);
    else if (tiles.narrow(p.columns))
      consume_tile<Shape::narrow, Epilogue>(shared, turns, group, tiles, p, e);
    else
      consume_tile<Shape::flat, Epilogue>(shared, turns, group, tiles, p, e);
  }
}

template <class O, class Epilogue>
__global__ void __maxnreg__(O::Registers::kLaunch)
    grouped_rows_kernel(const __grid_constant__ RowsMaps maps,
                        const __grid_constant__ RowsParameters p,
                        const __grid_constant__ typename Epilogue::Parameters e) {
  extern __shared__ __align__(1024) unsigned char raw[];
  auto& shared = *reinterpret_cast<RowsShared<O>*>(raw);
  if (threadIdx.x == 0) {
    prefetch_tensor_map(&maps.x);
    prefetch_tensor_map(&maps.w);
  }
  init_barriers(shared);
  O::Tiles::build(shared.tables, p.offsets, p.experts, p.columns);
  const int group = uniform_warp_index() / 4;
  if (group == 0) {
    setmaxnreg_dec<O::Registers::kProducer>();
    if (uniform_warp_index() == 0) produce_rows<O>(shared, maps, p);
  } else {
    setmaxnreg_inc<O::Registers::kConsumer>();
    consume_rows<O, Epilogue>(shared, group - 1, p, e);
  }
}

template <class O, class Epilogue>
cudaError_t launch_rows(const RowsMaps& maps, const RowsParameters& parameters,
                        const typename Epilogue::Parameters& epilogue, int blocks,
                        cudaStream_t stream) {
  constexpr int kBytes = sizeof(RowsShared<O>);
  static_assert(kBytes <= (O::kWidth == 208 ? kSharedOfSm : kSharedBesideOthers));
  const auto kernel = grouped_rows_kernel<O, Epilogue>;
  static const cudaError_t raised =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (raised != cudaSuccess) return raised;
  kernel<<<blocks, kThreads, kBytes, stream>>>(maps, parameters, epilogue);
  return cudaGetLastError();
}

}  // namespace stowage::kernels::grouped
