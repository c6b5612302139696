#pragma once

#include "kernels/grouped_mlp/grouped_epilogue.cuh"
#include "kernels/grouped_mlp/grouped_mainloop.cuh"

/// The kernel of the products over rows, y = x w[e]^T and dx = dy w[e], with an epilogue that takes
/// the sums of 16 rows of a warp: `apply<O>(sums, place, staged rows, parameters of both)`.
namespace stowage::kernels::grouped {

/// The ring, and rows on their way out, of each consumer warp.
template <class O>
struct RowsShared : Ring<O> {
  alignas(128) unsigned char staging[8][StagedRows<O::kWidth>::kBytes];
};

/// The bytes of the latter.
template <int kWidth>
constexpr int kStagingBytes = 8 * StagedRows<kWidth>::kBytes;

/// The 16 rows of a warp in one output tile.
struct WarpRows {
  std::int64_t row;  // in the whole matrix
  int rows;          // that belong to the expert, from this row on; may be less than one
  int column;
};

template <class O>
__device__ __forceinline__ void produce_rows(RowsShared<O>& shared, const CUtensorMap& x_map,
                                             const CUtensorMap& w_map, const RowsParameters& p) {
  if (!elect_one()) return;
  RowTiles tiles(shared.tables);
  RingPosition<O::kStages> at;
  for (; tiles.more(p.experts); tiles.next()) {
    const Tile tile = tiles.get<O::kColumns>(ceil_div(p.columns, O::kColumns));
    for (int k = 0; k < p.depth; k += kDepth) {
      mbarrier_wait(&shared.empty[at.stage], at.parity ^ 1U);
      Mbarrier* full = &shared.full[at.stage];
      mbarrier_arrive_expect_tx(full, O::kABytes + O::kBBytes);
      bulk_load_2d(shared.a[at.stage], &x_map, full, k, tile.begin + tile.row);
      if constexpr (O::kTransB) {
#pragma unroll
        for (int i = 0; i < O::kPanels; ++i) {
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

template <class O, class Epilogue>
__device__ __forceinline__ void consume_rows(RowsShared<O>& shared, int group,
                                             const RowsParameters& p,
                                             const typename Epilogue::Parameters& e) {
  RowTiles tiles(shared.tables);
  Turns<O> turns(shared, group);
  const int steps = ceil_div(p.depth, kDepth);
  for (; tiles.more(p.experts); tiles.next()) {
    if (!turns.take(steps)) continue;
    Sums<O> sums;
    multiply<O>(shared, turns, steps, true, sums);
    const Tile tile = tiles.get<O::kColumns>(ceil_div(p.columns, O::kColumns));
    const int thread = thread_index();
    const int warp = thread / 32 % 4;
    const StagedRows<O::kWidth> staged(shared.staging[group * 4 + warp], thread % 32);
#pragma unroll
    for (int block = 0; block < O::kBlocks; ++block) {
      const int row = tile.row + block * 64 + warp * 16;
      Epilogue::template apply<O>(sums[block], {tile.begin + row, tile.rows - row, tile.column},
                                  staged, p, e);
    }
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
  RowTiles::build(shared.tables, p.offsets, p.experts, ceil_div(p.columns, O::kColumns));
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
