// Attention backward on Hopper, part 2 from the stored score gradients: dQ = scale dS K.
//
// Layout: dS blocks of 128 keys x 64 queries from part 1, K and dq rows as in the forward.
// Cost: 2 P flops for every visible pair and one read of dS, 2 bytes for each.
// Deterministic: a tile of queries has one owner, which takes the keys in order.
// Design: a plain product with a producer warp and two warpgroups of 128 query rows each, so that a
// block of K serves 256 rows; with P = 256 three of 64 rows, all that the registers hold. dS is an
// M-major A operand, K an N-major B operand, both straight from shared memory.
// Limit on one H200: device memory, 86 % of its peak, tensor pipe 57 % at P = 128.

#include "kernels/attention/attention_fragment.cuh"
#include "kernels/attention/attention_launch.hpp"
#include "kernels/attention/attention_persistent.cuh"
#include "kernels/attention/attention_products.cuh"
#include "kernels/attention/attention_schedule.cuh"
#include "kernels/hopper/cp_async_bulk.cuh"
#include "kernels/hopper/fence.cuh"
#include "kernels/hopper/mbarrier.cuh"
#include "kernels/hopper/named_barrier.cuh"
#include "kernels/hopper/wgmma.cuh"

namespace stowage::kernels::attention {
namespace {

using namespace hopper;

template <int kHeadDimension>
struct Tiles {
  static constexpr int kHeadDim = kHeadDimension;
  static constexpr int kRows = stored_rows(kHeadDim);
  static constexpr int kKeys = kBackwardKeys;
  static constexpr int kStages = 2;
  static constexpr int kConsumers = kHeadDim == 256 ? 3 : 2;  // warpgroups
  static constexpr int kThreads = 128 * (kConsumers + 1);
  static constexpr int kProducerRegisters = kConsumers == 2 ? 40 : 32;
  static constexpr int kConsumerRegisters = kConsumers == 2 ? 232 : 160;
  static constexpr int kColumns = kHeadDim < 128 ? kHeadDim : 128;  // of a product
  static constexpr int kParts = kHeadDim / kColumns;
  static constexpr int kKBytes = kKeys * kHeadDim * 2;
  static constexpr int kBlocks = kRows / 64;  // of dS in a step
};

template <class T>
struct Shared {
  alignas(1024) unsigned char k[T::kStages][T::kKBytes];
  alignas(1024) unsigned char ds[T::kStages][T::kBlocks][kStoredBytes];
  Mbarrier full[T::kStages], empty[T::kStages];
  Mbarrier tile_full[2], tile_empty[2];
  Tile tile[2];
};

/// Steps of 128 keys that block row `i` of 64 queries takes; the last may hold 64 visible keys
/// only.
template <bool kCausal>
__device__ __forceinline__ int steps_of(const Tile& tile, int i) {
  if (i * 64 >= tile.length) return 0;
  return kCausal ? i / 2 + 1 : (tile.length + kBackwardKeys - 1) / kBackwardKeys;
}

/// Whether the even block row `i` sees but the first 64 of the keys of step `j`: the causal
/// diagonal. The others were not stored.
template <bool kCausal>
__device__ __forceinline__ bool sees_half(int i, int j) {
  return kCausal && i % 2 == 0 && j == i / 2;
}

template <class T, bool kCausal>
__device__ __forceinline__ int steps_of_tile(const Tile& tile) {
  const int last = min((tile.index + 1) * T::kBlocks, (tile.length + 63) / 64) - 1;
  return steps_of<kCausal>(tile, last);
}

template <class T, bool kCausal>
__device__ __forceinline__ void produce(Shared<T>& shared, const BackwardMaps& maps,
                                        const BackwardParameters& p) {
  const bool leader = threadIdx.x % 32 == 0;
  RingPosition<T::kStages> at;
  RingPosition<2> tile_at;
  while (true) {
    Tile tile = next_tile(p.schedule);
    if (leader) {
      tile.stored = tile.index < 0 ? -1 : stored_place(p, tile.document);
      mbarrier_wait(&shared.tile_empty[tile_at.stage], tile_at.parity ^ 1U);
      shared.tile[tile_at.stage] = tile;
      mbarrier_arrive(&shared.tile_full[tile_at.stage]);
      tile_at.next();
      if (tile.index >= 0) {
        const int kv_head = tile.head / p.heads_per_kv;
        const unsigned char* head_blocks =
            p.stored + stored_first(p, tile, tile.head) * kStoredBytes;
        const int n = steps_of_tile<T, kCausal>(tile);
        for (int j = 0; j < n; ++j) {
          mbarrier_wait(&shared.empty[at.stage], at.parity ^ 1U);
          std::uint32_t halves = 0;
#pragma unroll 1
          for (int r = 0; r < T::kBlocks; ++r) {
            const int i = tile.index * T::kBlocks + r;
            if (j < steps_of<kCausal>(tile, i)) halves += sees_half<kCausal>(i, j) ? 1 : 2;
          }
          mbarrier_arrive_expect_tx(&shared.full[at.stage],
                                    T::kKBytes + halves * (kStoredBytes / 2));
          bulk_load_5d(shared.k[at.stage], &maps.k, &shared.full[at.stage], 0,
                       tile.first_row + j * T::kKeys, 0, kv_head, tile.sequence,
                       CachePolicy::evict_last);
#pragma unroll 1
          for (int r = 0; r < T::kBlocks; ++r) {
            const int i = tile.index * T::kBlocks + r;
            if (j < steps_of<kCausal>(tile, i)) {
              bulk_load(shared.ds[at.stage][r],
                        head_blocks +
                            std::int64_t{stored_block<kCausal>(tile.length, i, j)} * kStoredBytes,
                        sees_half<kCausal>(i, j) ? kStoredBytes / 2 : kStoredBytes,
                        &shared.full[at.stage], CachePolicy::evict_first);
            }
          }
          at.next();
        }
      }
    }
    if (tile.index < 0) return;
    __syncwarp();
  }
}

/// dq (64 queries x kColumns) += dS (64 x 16 kSteps keys) times columns of K, from `k` on.
template <class T, int kSteps>
__device__ __forceinline__ void issue_dq(float (&dq)[T::kColumns / 2], const unsigned char* ds,
                                         const unsigned char* k) {
  // 8 x 8 matrices of 128 bytes: the next along queries 128 bytes on, the next along keys 1024.
  const std::uint64_t a = wgmma_descriptor(shared_address(ds), Swizzle::none, 1024, 128);
  const std::uint64_t b = mn_major<Swizzle::b128>(k, T::kKeys * 128);
  pin_registers(dq);
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    Wgmma<T::kColumns>::template ss<1, 1>(dq, advance(a, i * 2 * 1024), advance(b, i * 16 * 128),
                                          1);
  }
}

template <class T, bool kCausal>
__device__ __forceinline__ void consume(Shared<T>& shared, int group, const BackwardParameters& p) {
  const int warp = static_cast<int>(threadIdx.x / 32 % 4);
  constexpr int kMine = T::kBlocks / T::kConsumers;  // blocks of 64 rows of this warpgroup
  RingPosition<T::kStages> at;
  RingPosition<2> tile_at;

  while (true) {
    mbarrier_wait(&shared.tile_full[tile_at.stage], tile_at.parity);
    const Tile tile = shared.tile[tile_at.stage];
    mbarrier_arrive(&shared.tile_empty[tile_at.stage]);
    tile_at.next();
    if (tile.index < 0) return;
    const int first = tile.index * T::kBlocks + group * kMine;  // block row
    float dq[kMine * T::kParts][T::kColumns / 2];
#pragma unroll
    for (auto& part : dq) {
#pragma unroll
      for (float& sum : part) sum = 0;
    }
    const int n = steps_of_tile<T, kCausal>(tile);
    for (int j = 0; j < n; ++j) {
      mbarrier_wait(&shared.full[at.stage], at.parity);
#pragma unroll
      for (auto& part : dq) pin_registers(part);
#pragma unroll
      for (int r = 0; r < kMine * T::kParts; ++r) {
        const int mine = r / T::kParts;
        const int i = first + mine;
        const unsigned char* ds = shared.ds[at.stage][group * kMine + mine];
        const unsigned char* k =
            shared.k[at.stage] + r % T::kParts * (T::kColumns / 64) * T::kKeys * 128;
        if (j < steps_of<kCausal>(tile, i)) {
          // sees_half, with a constant where it is one
          if (kCausal && (kMine % 2 == 0 ? mine : i) % 2 == 0 && j == i / 2) {
            issue_dq<T, 4>(dq[r], ds, k);
          } else {
            issue_dq<T, 8>(dq[r], ds, k);
          }
          wgmma_commit_group();
        }
      }
      wgmma_wait_group<0>();
#pragma unroll
      for (auto& part : dq) pin_registers(part);
      if (j + 1 < n) {
        mbarrier_arrive(&shared.empty[at.stage]);
        at.next();
      }
    }
    // The last step's dS becomes the staging room of these warps' rows.
    unsigned char* staging = shared.ds[at.stage][group * kMine] + warp * 16 * 128;
    named_barrier_sync(1 + group, 128);
    const float scale[2] = {p.scale, p.scale};
#pragma unroll
    for (int r = 0; r < kMine * T::kParts; ++r) {
      const int row = (first + r / T::kParts) * 64 + warp * 16;
      stage_rows<T::kColumns>(staging, 64 * 128, dq[r], scale);
      fence_proxy_async();  // the next dS overwrites it through the other proxy
      __syncwarp();
      store_rows<T::kColumns>(static_cast<std::uint16_t*>(p.dq) +
                                  element(p.dq_strides, tile, row, tile.head) +
                                  r % T::kParts * T::kColumns,
                              p.dq_strides.row, staging, 64 * 128, tile.length - row);
      __syncwarp();
    }
    mbarrier_arrive(&shared.empty[at.stage]);
    at.next();
  }
}

template <class T, bool kCausal>
__global__ void __launch_bounds__(T::kThreads, 1)
    attention_backward_stored_kernel(const __grid_constant__ BackwardMaps maps,
                                     const __grid_constant__ BackwardParameters p) {
  extern __shared__ unsigned char raw[];
  auto& shared = aligned_shared<Shared<T>>(raw);
  if (threadIdx.x == 0) {
    prefetch_tensor_map(&maps.k);
    for (int i = 0; i < 2; ++i) {
      mbarrier_init(&shared.tile_full[i], 1);
      mbarrier_init(&shared.tile_empty[i], 128 * T::kConsumers);
    }
    for (int i = 0; i < T::kStages; ++i) {
      mbarrier_init(&shared.full[i], 1);
      mbarrier_init(&shared.empty[i], 128 * T::kConsumers);
    }
    mbarrier_init_fence();
  }
  __syncthreads();
  join_call();
  split_roles<T>([&] { produce<T, kCausal>(shared, maps, p); },
                 [&](int group) { consume<T, kCausal>(shared, group, p); });
}

}  // namespace

cudaError_t launch_attention_backward_stored_sm90(int head_dim, bool causal,
                                                  const BackwardMaps& maps,
                                                  const BackwardParameters& parameters, int blocks,
                                                  cudaStream_t stream) {
  return with_tiles<Tiles<64>, Tiles<128>, Tiles<256>>(
      head_dim, causal, [&](auto tiles, auto masked) {
        using T = decltype(tiles);
        return launch_persistent<attention_backward_stored_kernel<T, decltype(masked)::value>,
                                 Shared<T>>(blocks, T::kThreads, stream, maps, parameters);
      });
}

}  // namespace stowage::kernels::attention
