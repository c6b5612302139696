// Attention backward on Hopper, part 2 by recomputation: dQ = scale dS K with dS = P (d_o v^T -
// delta) and P = exp2(scale_log2 q k^T - lse2), where the stored dS of part 1 would not fit its
// room.
//
// Layout and numerics as in part 1. Cost: 6 P flops for every visible pair, 4 of them recomputed.
// Deterministic: a tile of queries has one owner, which takes the keys in order. Design: as the
// forward, with dO beside Q; dS leaves the accumulators as the register operand of the third
// product.
// Limit on one H200 at P = 64, T = 1024: tensor pipe 47 % of cycles, exp 31 %, issue 30 %: the
// chain of a step, of which two warpgroups hide half.

#include "kernels/attention/attention_fragment.cuh"
#include "kernels/attention/attention_launch.hpp"
#include "kernels/attention/attention_persistent.cuh"
#include "kernels/attention/attention_products.cuh"
#include "kernels/attention/attention_schedule.cuh"
#include "kernels/hopper/convert.cuh"
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
  static constexpr int kRows = kRecomputeRows;
  static constexpr int kKeys = recompute_keys(kHeadDim);
  static constexpr int kStages = 2;
  static constexpr int kQStages = kHeadDim == 64 ? 2 : 1;  // what fits
  static constexpr int kThreads = 384;
  static constexpr int kProducerRegisters = 40;
  static constexpr int kConsumerRegisters = 232;
  static constexpr int kRowBytes = kRows * kHeadDim * 2;
  static constexpr int kKeyBytes = kKeys * kHeadDim * 2;
};

template <class T>
struct Shared {
  alignas(1024) unsigned char q[T::kQStages][T::kRowBytes];
  alignas(1024) unsigned char d_o[T::kQStages][T::kRowBytes];
  alignas(1024) unsigned char k[T::kStages][T::kKeyBytes];
  alignas(1024) unsigned char v[T::kStages][T::kKeyBytes];
  Mbarrier q_full[T::kQStages], q_empty[T::kQStages];
  Mbarrier k_full[T::kStages], v_full[T::kStages], empty[T::kStages];
  Tile tile[T::kQStages];
};

template <class T, bool kCausal>
__device__ __forceinline__ int key_steps(const Tile& tile) {
  const int keys = kCausal ? min(tile.length, (tile.index + 1) * T::kRows) : tile.length;
  return (keys + T::kKeys - 1) / T::kKeys;
}

/// The next tile that has queries; called by a whole warp.
template <class T>
__device__ __forceinline__ Tile next_query_tile(const BackwardParameters& p) {
  while (true) {
    const Tile tile = next_tile(p.schedule);
    if (tile.index < 0) return tile;
    const QueryRows rows = query_rows(p.queries, tile, tile.index * T::kRows, T::kRows);
    if (rows.first < rows.end) return tile;
  }
}

template <class T, bool kCausal>
__device__ __forceinline__ void produce(Shared<T>& shared, const BackwardMaps& maps,
                                        const BackwardParameters& p) {
  const bool leader = threadIdx.x % 32 == 0;
  RingPosition<T::kStages> at;
  RingPosition<T::kQStages> q_at;
  while (true) {
    const Tile tile = next_query_tile<T>(p);
    if (leader) {
      Mbarrier* full = &shared.q_full[q_at.stage];
      mbarrier_wait(&shared.q_empty[q_at.stage], q_at.parity ^ 1U);
      shared.tile[q_at.stage] = tile;
      if (tile.index < 0) {
        mbarrier_arrive(full);
      } else {
        mbarrier_arrive_expect_tx(full, 2 * T::kRowBytes);
        const int row = tile.first_row + tile.index * T::kRows - p.queries.first;
        bulk_load_5d(shared.q[q_at.stage], &maps.q, full, 0, row, 0, tile.head, tile.sequence);
        bulk_load_5d(shared.d_o[q_at.stage], &maps.d_o, full, 0, row, 0, tile.head, tile.sequence);
        const int kv_head = tile.head / p.heads_per_kv;
        const int n = key_steps<T, kCausal>(tile);
        for (int j = 0; j < n; ++j) {
          const int key_row = tile.first_row + j * T::kKeys;
          mbarrier_wait(&shared.empty[at.stage], at.parity ^ 1U);
          mbarrier_arrive_expect_tx(&shared.k_full[at.stage], T::kKeyBytes);
          bulk_load_5d(shared.k[at.stage], &maps.k, &shared.k_full[at.stage], 0, key_row, 0,
                       kv_head, tile.sequence, CachePolicy::evict_last);
          mbarrier_arrive_expect_tx(&shared.v_full[at.stage], T::kKeyBytes);
          bulk_load_5d(shared.v[at.stage], &maps.v, &shared.v_full[at.stage], 0, key_row, 0,
                       kv_head, tile.sequence, CachePolicy::evict_last);
          at.next();
        }
      }
    }
    q_at.next();
    if (tile.index < 0) return;
    __syncwarp();
  }
}

template <class T, bool kCausal>
__device__ __forceinline__ void consume(Shared<T>& shared, int group, const BackwardParameters& p) {
  const int warp = static_cast<int>(threadIdx.x / 32 % 4);
  const int lane = static_cast<int>(threadIdx.x % 32);
  RingPosition<T::kStages> at;
  RingPosition<T::kQStages> q_at;

  while (true) {
    mbarrier_wait(&shared.q_full[q_at.stage], q_at.parity);
    const Tile tile = shared.tile[q_at.stage];
    if (tile.index < 0) return;
    unsigned char* q = shared.q[q_at.stage] + group * 64 * 128;
    const unsigned char* d_o = shared.d_o[q_at.stage] + group * 64 * 128;
    const int group_row = tile.index * T::kRows + group * 64;
    const int thread_row = group_row + warp * 16 + lane / 4;
    const std::int64_t statistics =
        tile.head * p.padded_rows + padded_first(p, tile.document) + thread_row;
    const float lse2[2] = {__ldg(p.lse2 + statistics), __ldg(p.lse2 + statistics + 8)};
    const float delta[2] = {__ldg(p.delta + statistics), __ldg(p.delta + statistics + 8)};
    float dq[T::kHeadDim / 2];
#pragma unroll
    for (int i = 0; i < T::kHeadDim / 2; ++i) dq[i] = 0;

    float s[T::kKeys / 2];
    float dp[T::kKeys / 2];
    std::uint32_t ds[T::kKeys / 4];
    const int n = key_steps<T, kCausal>(tile);
    for (int j = 0; j < n; ++j) {
      mbarrier_wait(&shared.k_full[at.stage], at.parity);
      mbarrier_wait(&shared.v_full[at.stage], at.parity);
      wgmma_fence();
      issue_scores<T::kHeadDim, T::kRows, T::kKeys>(s, q, shared.k[at.stage]);
      wgmma_commit_group();
      issue_scores<T::kHeadDim, T::kRows, T::kKeys>(dp, d_o, shared.v[at.stage]);
      wgmma_commit_group();
      wgmma_wait_group<1>();
      pin_registers(s);
      const int first_key = j * T::kKeys;
      if (kCausal ? first_key + T::kKeys - 1 > group_row : first_key + T::kKeys > tile.length) {
        mask_keys<T::kKeys, kCausal>(s, thread_row, first_key + lane % 4 * 2, tile.length);
      }
#pragma unroll
      for (int i = 0; i < T::kKeys / 2; ++i) s[i] = ex2(s[i] * p.scale_log2 - lse2[i / 2 % 2]);
      wgmma_wait_group<0>();
      pin_registers(dp);
#pragma unroll
      for (int i = 0; i < T::kKeys / 4; ++i) {
        ds[i] = pack_bf16(s[2 * i] * (dp[2 * i] - delta[i % 2]),
                          s[2 * i + 1] * (dp[2 * i + 1] - delta[i % 2]));
      }
      pin_registers(dq);
      pin_registers(ds);
      wgmma_fence();
      issue_weighted_rows<T::kHeadDim, T::kKeys>(dq, ds, shared.k[at.stage]);
      wgmma_commit_group();
      wgmma_wait_group<0>();
      pin_registers(dq);
      pin_registers(ds);
      if (lane == 0) mbarrier_arrive(&shared.empty[at.stage]);
      at.next();
    }

    named_barrier_sync(1 + group, 128);
    const float scale[2] = {p.scale, p.scale};
    const int row = group_row + warp * 16;
    const QueryRows rows = query_rows(p.queries, tile, row, 16);
    unsigned char* staging = q + warp * 16 * 128;
    stage_rows<T::kHeadDim>(staging, T::kRows * 128, dq, scale);
    fence_proxy_async();  // the next Q overwrites it through the other proxy
    __syncwarp();
    store_rows<T::kHeadDim>(
        static_cast<std::uint16_t*>(p.dq) + element(p.dq_strides, tile, row, tile.head),
        p.dq_strides.row, staging, T::kRows * 128, rows.end - row, rows.first - row);
    mbarrier_arrive(&shared.q_empty[q_at.stage]);
    q_at.next();
  }
}

template <class T, bool kCausal>
__global__ void __launch_bounds__(T::kThreads, 1)
    attention_backward_q_kernel(const __grid_constant__ BackwardMaps maps,
                                const __grid_constant__ BackwardParameters p) {
  extern __shared__ unsigned char raw[];
  auto& shared = aligned_shared<Shared<T>>(raw);
  if (threadIdx.x == 0) {
    prefetch_tensor_map(&maps.q);
    prefetch_tensor_map(&maps.k);
    prefetch_tensor_map(&maps.v);
    prefetch_tensor_map(&maps.d_o);
    for (int i = 0; i < T::kQStages; ++i) {
      mbarrier_init(&shared.q_full[i], 1);
      mbarrier_init(&shared.q_empty[i], 256);
    }
    for (int i = 0; i < T::kStages; ++i) {
      mbarrier_init(&shared.k_full[i], 1);
      mbarrier_init(&shared.v_full[i], 1);
      mbarrier_init(&shared.empty[i], 8);
    }
    mbarrier_init_fence();
  }
  __syncthreads();
  join_call();
  split_roles<T>([&] { produce<T, kCausal>(shared, maps, p); },
                 [&](int group) { consume<T, kCausal>(shared, group, p); });
}

}  // namespace

cudaError_t launch_attention_backward_q_sm90(int head_dim, bool causal, const BackwardMaps& maps,
                                             const BackwardParameters& parameters, int blocks,
                                             cudaStream_t stream) {
  return with_tiles<Tiles<64>, Tiles<128>, Tiles<256>>(
      head_dim, causal, [&](auto tiles, auto masked) {
        using T = decltype(tiles);
        return launch_persistent<attention_backward_q_kernel<T, decltype(masked)::value>,
                                 Shared<T>>(blocks, T::kThreads, stream, maps, parameters);
      });
}

}  // namespace stowage::kernels::attention
