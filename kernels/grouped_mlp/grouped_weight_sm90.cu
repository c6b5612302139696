// Weight gradients of a grouped product on Hopper: dw[e] = dy^T x over the rows of expert e.
//
// Layout: dy (rows, M), x (rows, K) bf16, rows sorted by expert; dw (E, M, K) fp32, stored or added
// to; offsets (E + 1) int32 on the device. Numerics: products and sums in fp32, in the order of the
// rows. Cost: 2 M K flops a row; 4 E M K bytes written, as many read when accumulating, which bind
// where an expert has few rows. Deterministic: an element has one owner and one order.
// Design: see grouped_mainloop.cuh. Both operands lie with the contraction down their rows, which
// wgmma reads as it is. The rows of the next expert that share the last stage are zeroed in shared
// memory, in both operands: they may hold anything, not only numbers. Sums leave by the copy engine
// in boxes of 1 KB; what they are added to comes the same way, the first boxes during the products.
// Limits on one H200: with 384 to 512 rows an expert neither the tensor pipe (66 %) nor memory
// (60 %) is full, and more room for the boxes changes nothing: operands and sums share the way
// between L2 and the multiprocessor, 74 bytes a cycle at full rate. Adding reaches 81 % of what its
// bytes allow. No gain: adding in L2 (1.2 TB/s), prefetching to L2 (worse), storing from registers
// (worse). Next: clusters of two tiles, one below the other, that share x.

#include "kernels/grouped_mlp/grouped_epilogue.cuh"
#include "kernels/grouped_mlp/grouped_mainloop.cuh"

namespace stowage::kernels::grouped {
namespace {

/// How a tile leaves: stored; or what is there read, added to and stored.
enum class Way { store, add };

/// The operands, and the room in which a warp's boxes (8 rows by 32 columns of fp32) pass.
template <Way kWayOut>
struct Weight : Operands<true, true, 192, 6 * 1024> {
  static constexpr Way kWay = kWayOut;
  static constexpr int kBuffers = 6;
  [[maybe_unused]] static constexpr int kAhead = kBuffers - 2;  // boxes on their way in
  static constexpr int kBoxBytes = 1024;
  static constexpr int kBoxesAcross = Weight::kWidth / 32;
  static constexpr int kBoxes = 4 * kBoxesAcross;  // of a warp in a tile
};

template <class O>
struct WeightShared : Shared<O> {
  Mbarrier box_full[8][O::kBuffers];  // add only
};

template <class O>
__device__ __forceinline__ WeightTiles tiles_of(const Shared<O>& shared,
                                                const WeightParameters& p) {
  return {shared.tables, p.experts, ceil_div(p.outputs, kTileRows), ceil_div(p.inputs, O::kWidth)};
}

/// Stages of a tile; an expert without rows has one, all zero, unless there is nothing to store.
template <class O>
__device__ __forceinline__ int steps_of(const Tile& tile) {
  return max(ceil_div(tile.rows, kDepth), O::kWay == Way::store ? 1 : 0);
}

template <class O>
__device__ __forceinline__ void produce(Shared<O>& shared, const CUtensorMap& dy_map,
                                        const CUtensorMap& x_map, const WeightParameters& p) {
  if (!elect_one()) return;
  WeightTiles tiles = tiles_of(shared, p);
  RingPosition<O::kStages> at;
  Tile tile;
  while (tiles.next<O::kWidth>(tile)) {
    const int steps = steps_of<O>(tile);
    for (int k = 0; k < steps; ++k) {
      mbarrier_wait(&shared.empty[at.stage], at.parity ^ 1U);
      Mbarrier* full = &shared.full[at.stage];
      mbarrier_arrive_expect_tx(full, O::kABytes + O::kBBytes);
      const int row = tile.begin + k * kDepth;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        bulk_load_2d(shared.a[at.stage] + i * O::kPanelBytes, &dy_map, full, tile.row + 64 * i,
                     row);
      }
#pragma unroll
      for (int i = 0; i < O::kPanels; ++i) {
        bulk_load_2d(shared.b[at.stage] + i * O::kPanelBytes, &x_map, full, tile.column + 64 * i,
                     row);
      }
      at.next();
    }
  }
}

/// Zeroes the rows of a stage from `valid` on, in all panels of both operands; all threads of the
/// warpgroup.
template <class O>
__device__ __forceinline__ void clear_rows(unsigned char* a, unsigned char* b, int valid,
                                           int barrier) {
  const int thread = static_cast<int>(threadIdx.x % 128);
  for (int panel = 0; panel < 2 + O::kPanels; ++panel) {
    unsigned char* base = panel < 2 ? a + panel * O::kPanelBytes : b + (panel - 2) * O::kPanelBytes;
    for (int i = valid * 128 + thread * 16; i < O::kPanelBytes; i += 128 * 16) {
      *reinterpret_cast<uint4*>(base + i) = uint4{0, 0, 0, 0};
    }
  }
  fence_proxy_async();
  named_barrier_sync(barrier, 128);
}

/// The boxes of a warp on their way to memory.
template <class O>
class Boxes {
 public:
  __device__ __forceinline__ Boxes(WeightShared<O>& shared, int warp, const CUtensorMap& map)
      : buffers_(shared.staging[warp]), full_(shared.box_full[warp]), map_(map) {}

  /// Takes place in front of the tile's products.
  __device__ __forceinline__ void begin(const Tile& tile, int row) {
    if constexpr (O::kWay == Way::add) {
      static_assert(O::kBoxes % (2 * O::kBuffers) == 0, "parities repeat with every tile");
      if (lane() != 0) return;
      bulk_wait_group_read<O::kBuffers - O::kAhead>();
#pragma unroll
      for (int box = 0; box < O::kAhead; ++box) load(tile, row, box);
    }
  }

  /// Sends the sums of both row blocks.
  __device__ __forceinline__ void send(const Tile& tile, int row, const Sums<O>& sums) {
#pragma unroll
    for (int box = 0; box < O::kBoxes; ++box) {
      if constexpr (O::kWay == Way::add) {
        if (lane() == 0 && box + O::kAhead < O::kBoxes) {
          bulk_wait_group_read<O::kBuffers - O::kAhead - 1>();
          load(tile, row, box + O::kAhead);
        }
        mbarrier_wait(&full_[box % O::kBuffers], box / O::kBuffers % 2);
      } else {
        if (lane() == 0) bulk_wait_group_read<O::kBuffers - 1>();
        __syncwarp();
      }
      fill(buffer(box), sums[box / (2 * O::kBoxesAcross)],
           box / 2 % O::kBoxesAcross * 16 + box % 2 * 2);
      fence_proxy_async();
      __syncwarp();
      if (lane() == 0) {
        bulk_store_3d(&map_, buffer(box), box_column(tile, box), box_row(row, box), tile.expert);
        bulk_commit_group();
      }
    }
  }

 private:
  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x % 32); }
  // Boxes lie in pairs, one below the other, as a thread holds rows lane / 4 and 8 below.
  static __device__ __forceinline__ int box_row(int row, int box) {
    return row + box / (2 * O::kBoxesAcross) * 64 + box % 2 * 8;
  }
  static __device__ __forceinline__ int box_column(const Tile& tile, int box) {
    return tile.column + box / 2 % O::kBoxesAcross * 32;
  }
  __device__ __forceinline__ unsigned char* buffer(int box) const {
    return buffers_ + box % O::kBuffers * O::kBoxBytes;
  }

  __device__ __forceinline__ void load(const Tile& tile, int row, int box) {
    Mbarrier* full = &full_[box % O::kBuffers];
    mbarrier_arrive_expect_tx(full, O::kBoxBytes);
    bulk_load_3d(buffer(box), &map_, full, box_column(tile, box), box_row(row, box), tile.expert);
  }

  /// Eight rows by 32 columns, the sums from `first` on, in the swizzled rows of a box.
  static __device__ __forceinline__ void fill(unsigned char* buffer,
                                              const float (&sums)[O::kWidth / 2], int first) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int at = lane() / 4 * 128 + j * 32 + lane() % 4 * 8;
      auto* to = reinterpret_cast<float2*>(buffer +
                                           swizzled<Swizzle::b128>(static_cast<std::uint32_t>(at)));
      float2 value{sums[first + 4 * j], sums[first + 4 * j + 1]};
      if constexpr (O::kWay == Way::add) {
        const float2 old = *to;
        value.x += old.x;
        value.y += old.y;
      }
      *to = value;
    }
  }

  unsigned char* buffers_;
  Mbarrier* full_;
  const CUtensorMap& map_;
};

template <class O>
__device__ __forceinline__ void consume(WeightShared<O>& shared, int group,
                                        const CUtensorMap& dw_map, const WeightParameters& p) {
  WeightTiles tiles = tiles_of(shared, p);
  Turns<O> turns(shared, group);
  const int warp = static_cast<int>(threadIdx.x / 32 % 4);
  Boxes<O> boxes(shared, group * 4 + warp, dw_map);
  Tile tile;
  while (tiles.next<O::kWidth>(tile)) {
    const int steps = steps_of<O>(tile);
    if (steps == 0 || !turns.take(steps)) continue;
    const int row = tile.row + warp * 16;
    boxes.begin(tile, row);
    Sums<O> sums;
    const int whole = tile.rows / kDepth;
    if (whole > 0) multiply<O>(shared, turns, whole, whole == steps, sums);
    if (whole < steps) {
      const RingPosition<O::kStages>& at = turns.at;
      mbarrier_wait(&shared.full[at.stage], at.parity);
      clear_rows<O>(shared.a[at.stage], shared.b[at.stage], tile.rows % kDepth, 1 + group);
      multiply_stage<O>(shared, turns, whole > 0, sums);
    }
    boxes.send(tile, row, sums);
  }
  bulk_wait_group<0>();
}

template <class O>
__global__ void __launch_bounds__(kThreads, 1)
    grouped_weight_kernel(const __grid_constant__ CUtensorMap dy_map,
                          const __grid_constant__ CUtensorMap x_map,
                          const __grid_constant__ CUtensorMap dw_map,
                          const __grid_constant__ WeightParameters p) {
  extern __shared__ __align__(1024) unsigned char raw[];
  auto& shared = *reinterpret_cast<WeightShared<O>*>(raw);
  if (threadIdx.x == 0) {
    prefetch_tensor_map(&dy_map);
    prefetch_tensor_map(&x_map);
    prefetch_tensor_map(&dw_map);
  }
  init_barriers(shared);
  if (O::kWay == Way::add && threadIdx.x < 8) {
    for (Mbarrier& barrier : shared.box_full[threadIdx.x]) mbarrier_init(&barrier, 1);
    mbarrier_init_fence();
  }
  WeightTiles::build(shared.tables, p.offsets, p.experts);
  const int group = uniform_warp_index() / 4;
  if (group == 0) {
    setmaxnreg_dec<kProducerRegisters>();
    if (uniform_warp_index() == 0) produce<O>(shared, dy_map, x_map, p);
  } else {
    setmaxnreg_inc<kConsumerRegisters>();
    consume<O>(shared, group - 1, dw_map, p);
  }
}

template <class O>
cudaError_t launch(const CUtensorMap& dy, const CUtensorMap& x, const CUtensorMap& dw,
                   const WeightParameters& parameters, int blocks, cudaStream_t stream) {
  constexpr int kBytes = sizeof(WeightShared<O>);
  static_assert(kBytes <= 232448);
  const auto kernel = grouped_weight_kernel<O>;
  static const cudaError_t raised =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (raised != cudaSuccess) return raised;
  kernel<<<blocks, kThreads, kBytes, stream>>>(dy, x, dw, parameters);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_weight_sm90(const CUtensorMap& dy, const CUtensorMap& x, const CUtensorMap& dw,
                               const WeightParameters& parameters, int blocks,
                               cudaStream_t stream) {
  return parameters.accumulate ? launch<Weight<Way::add>>(dy, x, dw, parameters, blocks, stream)
                               : launch<Weight<Way::store>>(dy, x, dw, parameters, blocks, stream);
}

}  // namespace stowage::kernels::grouped
