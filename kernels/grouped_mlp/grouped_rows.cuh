#pragma once

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

/// The bytes of the latter.
template <int kWidth>
constexpr int kStagingBytes = 8 * StagedRows<kWidth>::kBytes;

/// The rows of a warp in one output tile: 16, or as many in each of its blocks of 64.
struct WarpRows {
  std::int64_t row;  // the first of them, in the whole matrix
  int rows;          // that belong to the expert, from this row on; may be less than one
  int column;
  int strip;  // of tiles
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

template <class O>
__device__ __forceinline__ void produce_rows(RowsShared<O>& shared, const CUtensorMap& x_map,
                                             const CUtensorMap& w_map, const RowsParameters& p) {
  if (!elect_one()) return;
  RowTiles tiles(shared.tables);
  RingPosition<O::kStages> at;
  const typename O::ColumnStrips strips(p.columns);
  for (; tiles.more(p.experts); tiles.next()) {
    const Tile tile = tiles.get(strips);
    const bool narrow = strips.is_narrow(tile.strip);
    const int bytes = narrow ? O::kABytes + O::kNarrowBytes : O::kABytes + O::kBBytes;
    for (int k = 0; k < p.depth; k += kDepth) {
      mbarrier_wait(&shared.empty[at.stage], at.parity ^ 1U);
      Mbarrier* full = &shared.full[at.stage];
      mbarrier_arrive_expect_tx(full, bytes);
      bulk_load_2d(shared.a[at.stage], &x_map, full, k, tile.begin + tile.row);
      if constexpr (O::kTransB) {
#pragma unroll
        for (int i = 0; i < O::kPanels; ++i) {
          if (64 * i >= O::kNarrow && narrow) break;
          bulk_load_3d(shared.b[at.stage] + i * O::kPanelBytes, &w_map, full, tile.column + 64 * i,
                       k, tile.expert);
        }
      } else {
        bulk_load_3d(shared.b[at.stage], &w_map, full, k, tile.column, tile.expert);
        if constexpr (O::kGated) {
          bulk_load_3d(shared.b[at.stage] + O::kBBytes / 2, &w_map, full, k,
                       p.columns + tile.column, tile.expert);
        }
      }
      at.next();
    }
  }
}

/// One tile of a consumer warpgroup, `kWidth` wide.
template <class O, class Epilogue, int kWidth>
__device__ __forceinline__ void consume_tile(RowsShared<O>& shared, Turns<O>& turns,
                                             RowTiles& tiles, int group, int steps,
                                             const RowsParameters& p,
                                             const typename Epilogue::Parameters& e) {
  Sums<O, kWidth> sums;
  multiply<O, kWidth>(shared, turns, steps, true, sums);
  const Tile tile = tiles.get(typename O::ColumnStrips(p.columns));
  const int thread = thread_index();
  const int warp = thread / 32 % 4, row = tile.row + warp * 16;
  const StagedRows<kWidth> staged(shared.staging[group * 4 + warp], thread % 32);
  Epilogue::apply(sums, {tile.begin + row, tile.rows - row, tile.column, tile.strip}, staged, p, e);
}

template <class O, class Epilogue>
__device__ __forceinline__ void consume_rows(RowsShared<O>& shared, int group,
                                             const RowsParameters& p,
                                             const typename Epilogue::Parameters& e) {
  RowTiles tiles(shared.tables);
  Turns<O> turns(shared, group);
  const int steps = ceil_div(p.depth, kDepth);
  for (; tiles.more(p.experts); tiles.next()) {
    if (!turns.take(steps)) continue;
    if constexpr (O::kNarrow > 0) {
      const typename O::ColumnStrips strips(p.columns);
      if (strips.is_narrow(tiles.get(strips).strip)) {
        consume_tile<O, Epilogue, O::kNarrow>(shared, turns, tiles, group, steps, p, e);
        continue;
      }
    }
    consume_tile<O, Epilogue, O::kWidth>(shared, turns, tiles, group, steps, p, e);
  }
}

template <class O, class Epilogue>
__global__ void __launch_bounds__(kThreads, 1)
    grouped_rows_kernel(const __grid_constant__ CUtensorMap x_map,
                        const __grid_constant__ CUtensorMap w_map,
                        const __grid_constant__ RowsParameters p,
                        const __grid_constant__ typename Epilogue::Parameters e) {
  extern __shared__ __align__(1024) unsigned char raw[];
  auto& shared = *reinterpret_cast<RowsShared<O>*>(raw);
  if (threadIdx.x == 0) {
    prefetch_tensor_map(&x_map);
    prefetch_tensor_map(&w_map);
  }
  init_barriers(shared);
  RowTiles::build(shared.tables, p.offsets, p.experts, typename O::ColumnStrips(p.columns).count);
  const int group = uniform_warp_index() / 4;
  if (group == 0) {
    setmaxnreg_dec<kProducerRegisters>();
    if (uniform_warp_index() == 0) produce_rows<O>(shared, x_map, w_map, p);
  } else {
    setmaxnreg_inc<kConsumerRegisters>();
    consume_rows<O, Epilogue>(shared, group - 1, p, e);
  }
}

template <class O, class Epilogue>
cudaError_t launch_rows(const CUtensorMap& x, const CUtensorMap& w,
                        const RowsParameters& parameters,
                        const typename Epilogue::Parameters& epilogue, int blocks,
                        cudaStream_t stream) {
  constexpr int kBytes = sizeof(RowsShared<O>);
  static_assert(kBytes <= 232448);
  const auto kernel = grouped_rows_kernel<O, Epilogue>;
  static const cudaError_t raised =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (raised != cudaSuccess) return raised;
  kernel<<<blocks, kThreads, kBytes, stream>>>(x, w, parameters, epilogue);
  return cudaGetLastError();
}

}  // namespace stowage::kernels::grouped
