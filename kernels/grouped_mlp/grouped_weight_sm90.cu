// Weight gradients of a grouped product on Hopper: dw[e] = dy^T x over the rows of expert e.
//
// Layout: dy (rows, M), x (rows, K) bf16, rows sorted by expert; dw (E, M, K) fp32, stored or added
// to; offsets (E + 1) int32 on the device. Numerics: products and sums in fp32, in the order of the
// rows. Cost: 2 M K flops a row; 4 E M K bytes written, as many read when accumulating, which bind
// where an expert has few rows. Deterministic: an element has one owner and one order.
// Design: see grouped_mainloop.cuh and, for the way out, grouped_boxes.cuh. Both operands lie with
// the contraction down their rows, which wgmma reads as it is. The rows of the next expert that
// share the last stage are zeroed in shared memory, in both operands: they may hold anything, not
// only numbers. Tiles are 128 by 192 or 192 by 128, whichever wastes less of the matrix.
// Limits on one H200: all operands and dw go through L2, 8 to 11 TB/s of it, which binds where dw
// is stored; with 384 or 512 rows an expert adding reaches 85 to 92 % of what its bytes allow: a
// few blocks lose the others, with whom they shared operands in L2, take 15000 clocks a tile
// instead of 12000, and end a tenth after them. With rows as 1 / (e + 1) what is stored is shared
// in pieces (grouped_weight_pieces.cuh); what is added to is not, as they gained nothing there.

#include <algorithm>
#include <type_traits>

#include "kernels/grouped_mlp/grouped_boxes.cuh"
#include "kernels/grouped_mlp/grouped_weight_pieces.cuh"

namespace stowage::kernels::grouped {
namespace {

/// Slots of the way out, 8 KB each, leave four or three stages to the products. Where memory binds,
/// adding to experts of few rows, a whole tile in the slots is worth a stage.
constexpr int kFewSlots = 7, kManySlots = 12;

/// Below so many rows, memory binds by so far that a few long experts bind otherwise than the many
/// short ones beside them: unequal loads take the few slots there.
constexpr std::int64_t kLeastRows = 448;

/// The loads that a kernel works on; it leaves others to the kernel launched beside it.
enum class Loads { all, even, unequal };

constexpr int kZeroBytes = 1024;
constexpr int kShareBytes = sizeof(WeightShare) + kZeroBytes;

template <Way kWayOut, int kTileHeight, int kTileWidth, int kOutSlots, Loads kOfLoads = Loads::all>
struct Weight
    : Operands<true, true, kTileWidth, kOutSlots * 8192 + kShareBytes, false, kTileHeight> {
  static constexpr Way kWay = kWayOut;
  static constexpr int kSlots = kOutSlots;
  static constexpr Loads kLoads = kOfLoads;
  static constexpr int kUnread = 3;  // stores that may still read their slots
  // Where memory binds, what is added to must not drive the operands out of L2.
  static constexpr CachePolicy kOperands =
      kWay == Way::add && (kSlots == kManySlots || kLoads == Loads::unequal)
          ? CachePolicy::evict_last
          : CachePolicy::evict_normal;
  static constexpr bool kInPieces = kWay == Way::store && kLoads == Loads::unequal;
  using Jobs = std::conditional_t<kInPieces, WeightPieces<kTileHeight, kTileWidth>,
                                  WeightTiles<kTileHeight, kTileWidth>>;
};

/// Steps of a tile's products that count as long as its way out, where blocks divide into groups.
template <class O>
__device__ __forceinline__ int way_out_steps(const WeightParameters& p) {
  if (O::kWay == Way::store) return p.rows < kFewRows * p.experts ? 6 : 4;
  return O::kSlots == kManySlots ? 6 : 0;
}

/// An expert of more than so many times the average's rows makes a load unequal; with no more
/// experts than that none can have.
constexpr int kUnequal = 4;

/// Whether an expert has rows that launches before have not summed. All threads of the block.
__device__ __forceinline__ bool has_more(const WeightParameters& p) {
  bool more = false;
  for (int e = static_cast<int>(threadIdx.x); e < p.experts; e += static_cast<int>(blockDim.x))
    more = more || p.offsets[e + 1] - p.offsets[e] > p.done;
  return __syncthreads_or(more ? 1 : 0) != 0;
}

template <class O>
struct WeightShared : Ring<O> {
  BoxRing<O> out;
  WeightShare share;
  alignas(128) unsigned char zeros[kZeroBytes];
};

/// Stores zeros for the experts without rows, beside the products and as memory takes them: one
/// thread.
template <class O>
__device__ __forceinline__ void store_zeros(const WeightShared<O>& shared,
                                            const WeightParameters& p) {
  const std::int64_t bytes = std::int64_t{4} * p.outputs * p.inputs;
  for (int rank = shared.share.busy; rank < p.experts; ++rank) {
    auto* dw = reinterpret_cast<unsigned char*>(p.dw) + shared.tables.first[rank] * bytes;
    for (std::int64_t at = std::int64_t{blockIdx.x} * kZeroBytes; at < bytes;
         at += std::int64_t{gridDim.x} * kZeroBytes) {
      bulk_store(dw + at, shared.zeros,
                 static_cast<std::uint32_t>(min(bytes - at, std::int64_t{kZeroBytes})));
      bulk_commit_group();
      bulk_wait_group_read<8>();
    }
  }
  bulk_wait_group<0>();
}

template <class O>
__device__ __forceinline__ void produce(WeightShared<O>& shared, const CUtensorMap& dy_map,
                                        const CUtensorMap& x_map, const WeightParameters& p) {
  typename O::Jobs jobs(shared.tables, shared.share, p);
  RingPosition<O::kStages> at;
  Job job;
  while (jobs.next(job)) {
    const Tile& tile = job.tile;
    for (int k = job.first; k < job.first + job.steps; ++k) {
      mbarrier_wait(&shared.empty[at.stage], at.parity ^ 1U);
      Mbarrier* full = &shared.full[at.stage];
      mbarrier_arrive_expect_tx(full, O::kABytes + O::kBBytes);
      const int row = tile.begin + k * kDepth;
#pragma unroll
      for (int i = 0; i < O::kBlocks; ++i) {
        bulk_load_2d(shared.a[at.stage] + i * O::kPanelBytes, &dy_map, full, tile.row + 64 * i, row,
                     O::kOperands);
      }
#pragma unroll
      for (int i = 0; i < O::kPanels; ++i) {
        bulk_load_2d(shared.b[at.stage] + i * O::kPanelBytes, &x_map, full, tile.column + 64 * i,
                     row, O::kOperands);
      }
      at.next();
    }
  }
}

/// Zeroes the rows of a stage from `valid` up to the next multiple of 16, behind which nothing is
/// multiplied, in all panels of both operands; all threads of the warpgroup.
template <class O>
__device__ __forceinline__ void clear_rows(unsigned char* a, unsigned char* b, int valid,
                                           int barrier) {
  const int thread = static_cast<int>(threadIdx.x % 128);
  const int end = ceil_div(valid, 16) * 16 * 128;
  for (int panel = 0; panel < O::kBlocks + O::kPanels; ++panel) {
    unsigned char* base =
        panel < O::kBlocks ? a + panel * O::kPanelBytes : b + (panel - O::kBlocks) * O::kPanelBytes;
    for (int i = valid * 128 + thread * 16; i < end; i += 128 * 16) {
      *reinterpret_cast<uint4*>(base + i) = uint4{0, 0, 0, 0};
    }
  }
  fence_proxy_async();
  named_barrier_sync(barrier, 128);
}

template <class O>
__device__ __forceinline__ void consume(WeightShared<O>& shared, int group,
                                        const WeightParameters& p) {
  typename O::Jobs jobs(shared.tables, shared.share, p);
  Turns<O> turns(shared, group);
  BoxFiller<O> out(shared.out, group);
  Job job;
  Sums<O> sums;
  while (jobs.next(job)) {
    if (!turns.take(job.steps)) {
      if (job.last) out.skip();
      continue;
    }
    const int rows = job.tile.rows;
    const int whole = min(rows / kDepth - job.first, job.steps);
    if (whole > 0) multiply<O>(shared, turns, whole, whole == job.steps, sums, job.first > 0);
    if (whole < job.steps) {
      const RingPosition<O::kStages>& at = turns.at;
      mbarrier_wait(&shared.full[at.stage], at.parity);
      clear_rows<O>(shared.a[at.stage], shared.b[at.stage], rows % kDepth, 1 + group);
      multiply_stage<O>(shared, turns, job.first + whole > 0, ceil_div(rows % kDepth, 16), sums);
    }
    if (job.last) out.fill(sums, jobs.next_ends());
  }
}

template <class O>
__global__ void __maxnreg__(O::Registers::kLaunch)
    grouped_weight_kernel(const __grid_constant__ CUtensorMap dy_map,
                          const __grid_constant__ CUtensorMap x_map,
                          const __grid_constant__ CUtensorMap dw_map,
                          const __grid_constant__ WeightParameters p) {
  extern __shared__ __align__(1024) unsigned char raw[];
  auto& shared = *reinterpret_cast<WeightShared<O>*>(raw);
  if (O::kLoads != Loads::all &&
      longer_than(kUnequal, p.offsets, p.experts) != (O::kLoads == Loads::unequal))
    return;
  if (p.done > 0 && !has_more(p)) return;
  if (threadIdx.x == 0) {
    prefetch_tensor_map(&dy_map);
    prefetch_tensor_map(&x_map);
    prefetch_tensor_map(&dw_map);
  }
  init_barriers(shared);
  init_box_barriers(shared.out);
  if (O::kWay == Way::store && threadIdx.x < kZeroBytes / 16)
    reinterpret_cast<uint4*>(shared.zeros)[threadIdx.x] = uint4{0, 0, 0, 0};
  O::Jobs::build(shared.tables, shared.share, p, way_out_steps<O>(p),
                 reinterpret_cast<BlockLoad*>(shared.a));
  fence_proxy_async();  // of the zeros, and of what build leaves in the stages
  __syncthreads();
  const int warp = uniform_warp_index();
  if (warp / 4 == 0) {
    setmaxnreg_dec<O::Registers::kProducer>();
    if (warp == 0 && elect_one()) produce<O>(shared, dy_map, x_map, p);
    if (warp == 1 && elect_one())
      store_boxes<O>(shared.out, dw_map, typename O::Jobs(shared.tables, shared.share, p));
    if (O::kWay == Way::add && warp == 3 && elect_one())
      load_boxes<O>(shared.out, dw_map, typename O::Jobs(shared.tables, shared.share, p));
    if (O::kWay == Way::store && warp == 2 && elect_one()) store_zeros<O>(shared, p);
  } else {
    setmaxnreg_inc<O::Registers::kConsumer>();
    consume<O>(shared, warp / 4 - 1, p);
  }
}

template <class O>
cudaError_t launch(const CUtensorMap& dy, const CUtensorMap& x, const CUtensorMap& dw,
                   const WeightParameters& parameters, int blocks, cudaStream_t stream) {
  constexpr int kBytes = sizeof(WeightShared<O>);
  static_assert(kBytes <= kSharedBesideOthers);
  const auto kernel = grouped_weight_kernel<O>;
  static const cudaError_t raised =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (raised != cudaSuccess) return raised;
  kernel<<<std::min(blocks, kMaxBlocks), kThreads, kBytes, stream>>>(dy, x, dw, parameters);
  return cudaGetLastError();
}

/// Two kernels, of which one works, as the load is.
template <class Even, class Unequal>
cudaError_t launch_either(const CUtensorMap& dy, const CUtensorMap& x, const CUtensorMap& dw,
                          const WeightParameters& p, int blocks, cudaStream_t stream) {
  const cudaError_t status = launch<Even>(dy, x, dw, p, blocks, stream);
  return status == cudaSuccess ? launch<Unequal>(dy, x, dw, p, blocks, stream) : status;
}

/// The first rows of all experts.
template <int kTileHeight, int kTileWidth>
cudaError_t launch_first(const CUtensorMap& dy, const CUtensorMap& x, const CUtensorMap& dw,
                         const WeightParameters& p, int blocks, cudaStream_t stream) {
  const auto one = [&]<Way kWay, int kSlots>() {
    return launch<Weight<kWay, kTileHeight, kTileWidth, kSlots>>(dy, x, dw, p, blocks, stream);
  };
  const auto either = [&]<Way kWay, int kEvenSlots>() {
    return launch_either<Weight<kWay, kTileHeight, kTileWidth, kEvenSlots, Loads::even>,
                         Weight<kWay, kTileHeight, kTileWidth, kFewSlots, Loads::unequal>>(
        dy, x, dw, p, blocks, stream);
  };
  const bool few = p.rows < (kFewRows * p.experts);
  const bool several = p.experts > kUnequal;
  if (!p.accumulate)
    return few && several ? either.template operator()<Way::store, kFewSlots>()
                          : one.template operator()<Way::store, kFewSlots>();
  if (!few) return one.template operator()<Way::add, kFewSlots>();
  if (p.rows >= kLeastRows * p.experts || !several)
    return one.template operator()<Way::add, kManySlots>();
  return either.template operator()<Way::add, kManySlots>();
}

template <int kTileHeight, int kTileWidth>
cudaError_t launch(const CUtensorMap& dy, const CUtensorMap& x, const CUtensorMap& dw,
                   const WeightParameters& p, int blocks, cudaStream_t stream) {
  cudaError_t status = launch_first<kTileHeight, kTileWidth>(dy, x, dw, p, blocks, stream);
  WeightParameters more = p;
  while (status == cudaSuccess && more.done + kMostRows < p.rows) {
    more.done += kMostRows;
    status = launch<Weight<Way::add, kTileHeight, kTileWidth, kFewSlots>>(dy, x, dw, more, blocks,
                                                                          stream);
  }
  return status;
}

}  // namespace

cudaError_t launch_weight_sm90(const CUtensorMap& dy, const CUtensorMap& x, const CUtensorMap& dw,
                               const WeightParameters& p, int blocks, cudaStream_t stream) {
  const std::int64_t flat = std::int64_t{ceil_div(p.outputs, 128)} * ceil_div(p.inputs, 192);
  const std::int64_t tall = std::int64_t{ceil_div(p.outputs, 192)} * ceil_div(p.inputs, 128);
  const auto with = tall < flat ? launch<192, 128> : launch<128, 192>;
  return with(dy, x, dw, p, blocks, stream);
}

}  // namespace stowage::kernels::grouped
