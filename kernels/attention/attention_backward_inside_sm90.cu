// Attention backward on Hopper in one pass: dK, dV, and dQ added up in fp32 in memory.
//
// Formulas, operands and dK, dV as in attention_backward_kv_sm90.cu. The third product of a step,
// dS K of its keys, is this tile's share of dQ = scale dS K: it is added to sums (H, padded rows,
// P) in fp32, which attention_backward_round.cu scales and rounds.
// Layout of the sums: blocks of 64 queries x 64 columns, each as the accumulators of a warpgroup
// lie, so that they are staged and copied without a bank conflict.
// Cost: 10 P flops for every visible pair; 4 P bytes are added in L2 for every 128 pairs.
// Deterministic: a block's shares are added in the order of their keys. Its turn is a counter in
// memory: an adder waits until those before it have added, and counts itself when its bytes are in
// memory. The first one writes, so the sums are not cleared.
// No wait can be for ever: tiles of a head and document are drawn in the order of the adds, a block
// takes its tiles in the order in which it drew them, and the first unfinished one waits for none.
// Waits are rare: tiles take queries from the last ones down, and of each all heads, so that tiles
// of any keys keep the same pace, each behind the one drawn before it by as much as an addition
// takes. The longest tiles can be drawn first, and few idle at the end.
// Design (FlashAttention-3's backward, arXiv 2407.08608; the order of FlashAttention's
// deterministic mode): as attention_backward_kv_sm90.cu, but both warpgroups take every step
// together, because dS of both lies in shared memory for dS K, of which each makes 64 rows (P = 64)
// or 64 columns (P = 128). dK and dV run while the warpgroups meet, dS K behind them, and the share
// leaves under the next scores. Two more warps of the producer's warpgroup wait for turns and drive
// the copies' additions, one for each consumer.

#include "kernels/attention/attention_backward_steps.cuh"
#include "kernels/attention/attention_launch.hpp"
#include "kernels/attention/attention_persistent.cuh"
#include "kernels/attention/attention_products.cuh"
#include "kernels/attention/attention_schedule.cuh"
#include "kernels/hopper/cp_async_bulk.cuh"
#include "kernels/hopper/fence.cuh"
#include "kernels/hopper/global_order.cuh"
#include "kernels/hopper/matrix_move.cuh"
#include "kernels/hopper/mbarrier.cuh"
#include "kernels/hopper/named_barrier.cuh"
#include "kernels/hopper/wgmma.cuh"

namespace stowage::kernels::attention {
namespace {

using namespace hopper;

template <int kHeadDimension, int kQueryRows, int kTilesInRing, int kStepsInRing>
struct Tiles {
  static constexpr int kHeadDim = kHeadDimension;
  static constexpr int kKeys = kBackwardKeys;       // of a tile, 64 for each of two warpgroups
  static constexpr int kQueries = kQueryRows;       // of a step
  static constexpr int kStages = kStepsInRing;      // of Q and dO
  static constexpr int kTileStages = kTilesInRing;  // of K and V
  // The wait for dP held behind the exponentials: the warpgroups take them at the same time, so no
  // other product runs beside them.
  static constexpr bool kHoldWait = true;
  static constexpr int kThreads = 384;
  static constexpr int kProducerRegisters = 40;
  static constexpr int kConsumerRegisters = 232;
  static constexpr int kKeyBytes = kKeys * kHeadDim * 2;
  static constexpr int kQueryBytes = kQueries * kHeadDim * 2;
  static constexpr int kPanels = kQueries / 64;       // of dS, 64 queries each
  static constexpr int kPanelBytes = kKeys * 64 * 2;  // of one of them
  static constexpr int kShareBytes = kSumBlock * 4;   // of a warpgroup's share of dQ
};

template <class T>
struct Shared {
  alignas(1024) unsigned char k[T::kTileStages][T::kKeyBytes];
  alignas(1024) unsigned char v[T::kTileStages][T::kKeyBytes];
  alignas(1024) unsigned char q[T::kStages][T::kQueryBytes];
  alignas(1024) unsigned char d_o[T::kStages][T::kQueryBytes];
  alignas(1024) unsigned char ds[T::kPanels][T::kPanelBytes];
  alignas(1024) float share[2][kSumBlock];  // of each warpgroup, on its way to the sums
  alignas(16) float lse2[T::kStages][T::kQueries];
  alignas(16) float delta[T::kStages][T::kQueries];
  Mbarrier kv_full[T::kTileStages], kv_empty[T::kTileStages];
  Mbarrier q_full[T::kStages], d_o_full[T::kStages], empty[T::kStages];
  Mbarrier ds_empty, share_full[2], share_empty[2];
  Tile tile[T::kTileStages];
};

template <class T>
__device__ __forceinline__ void begin_barriers(Shared<T>& shared, const BackwardMaps& maps) {
  mbarrier_init(&shared.ds_empty, 8);  // a lane of each consumer warp
  for (int i = 0; i < 2; ++i) {
    mbarrier_init(&shared.share_full[i], 128);
    mbarrier_init(&shared.share_empty[i], 1);
  }
  begin_rings<T>(shared, maps, 256 + 2);  // the consumers, and the adders for the tile
}

/// Adds the shares of warpgroup `group` to the sums, each in its turn; by one thread.
template <class T>
__device__ __forceinline__ void add_shares(Shared<T>& shared, int group,
                                           const BackwardParameters& p) {
  constexpr int kColumnBlocks = T::kHeadDim / 64;
  const int my_queries = T::kPanels == 2 ? group : 0;
  const int my_columns = T::kPanels == 2 ? 0 : group;
  const int head_blocks = static_cast<int>(p.padded_rows / 64) * kColumnBlocks;
  RingPosition<T::kTileStages> kv_at;
  std::uint32_t parity = 0;
  while (true) {
    mbarrier_wait(&shared.kv_full[kv_at.stage], kv_at.parity);
    const Tile tile = shared.tile[kv_at.stage];
    mbarrier_arrive(&shared.kv_empty[kv_at.stage]);
    kv_at.next();
    if (tile.index < 0) return;
    const int document = padded_first(p, tile.document) / 64 + my_queries;
    const int turn = tile.index;  // all tiles of lower keys see these queries, too
    for (StepsFromLast<T> steps(tile, p); !steps.done(tile, p); steps.next(tile, p)) {
      const int head = tile.head * p.heads_per_kv + steps.head;
      const int block =
          head * head_blocks + (document + steps.query / 64) * kColumnBlocks + my_columns;
      float* sum = p.sums + std::int64_t{block} * kSumBlock;
      while (load_acquire(p.turns + block) != turn) {
      }
      fence_proxy_async_global();  // the copies below come behind those of the turns before
      mbarrier_wait(&shared.share_full[group], parity);
      parity ^= 1U;
      if (turn == 0) {
        bulk_store(sum, shared.share[group], T::kShareBytes);
      } else {
        bulk_reduce_add_f32(sum, shared.share[group], T::kShareBytes);
      }
      bulk_commit_group();
      bulk_wait_group_read<0>();
      mbarrier_arrive(&shared.share_empty[group]);
      bulk_wait_group<0>();
      fence_proxy_async_global();
      store_release(p.turns + block, turn + 1);
    }
  }
}

/// Brings a warp's 16 keys x queries of dS to shared memory as 8 x 8 matrices of 128 bytes, the
/// next along queries 128 bytes on, the next along keys 1024; `out` is the warp's place in a panel.
template <class T>
__device__ __forceinline__ void stage_ds(const std::uint32_t (&ds)[T::kQueries / 4],
                                         unsigned char* out) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::uint32_t base =
      shared_address(out) + lane / 8 % 2 * 1024 + lane / 16 * 128 + lane % 8 * 16;
#pragma unroll
  for (int panel = 0; panel < T::kPanels; ++panel) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const std::uint32_t* matrices = ds + 16 * panel + 4 * j;
      stmatrix_x4(base + panel * T::kPanelBytes + j * 256, matrices[0], matrices[1], matrices[2],
                  matrices[3]);
    }
  }
}

/// dq (64 queries x 64 columns) = dS (64 queries x 128 keys) K; issued, not waited for.
template <class T>
__device__ __forceinline__ void issue_dq(float (&dq)[32], const unsigned char* ds,
                                         const unsigned char* k) {
  const std::uint64_t a = wgmma_descriptor(shared_address(ds), Swizzle::none, 1024, 128);
  const std::uint64_t b = mn_major<Swizzle::b128>(k, T::kKeys * 128);
#pragma unroll
  for (int i = 0; i < T::kKeys / 16; ++i) {
    Wgmma<64>::template ss<1, 1>(dq, advance(a, i * 2 * 1024), advance(b, i * 16 * 128), i > 0);
  }
}

template <class T, bool kCausal>
__device__ __forceinline__ void consume(Shared<T>& shared, int group, const BackwardParameters& p) {
  const int warp = static_cast<int>(threadIdx.x / 32 % 4);
  const int lane = static_cast<int>(threadIdx.x % 32);
  constexpr int kBothGroups = 1;  // named barrier
  RingPosition<T::kStages> at;    // of the next step that is not begun
  RingPosition<T::kTileStages> kv_at;
  std::uint32_t parity = 0;  // of this step's dS and share
  StepsFromLast<T> steps{};
  float s[T::kQueries / 2];   // scores of the current step, then its probabilities
  float dp[T::kQueries / 2];  // their gradients
  float dk[T::kHeadDim / 2];
  float dv[T::kHeadDim / 2];

  // Of the current tile; reread where needed: registers are short.
  const auto tile = [&]() -> const Tile& { return shared.tile[kv_at.stage]; };
  const auto group_key = [&] { return tile().index * T::kKeys + group * 64; };  // in the document
  const auto issue_s = [&] {
    mbarrier_wait(&shared.q_full[at.stage], at.parity);
    begin_scores<T>(s, shared, kv_at.stage, group * 64, at.stage);
  };
  const auto finish = [&] {
    finish_scores<T, kCausal>(s, dp, shared, kv_at.stage, group * 64, at, steps.query,
                              p.scale_log2);
  };
  // Brings this warpgroup's share to the adder, in the order of registers.
  const auto hand_over = [&](const float(&dq)[32]) {
    mbarrier_wait(&shared.share_empty[group], parity ^ 1U);
    auto* out = reinterpret_cast<float4*>(shared.share[group]) + threadIdx.x % 128;
#pragma unroll
    for (int j = 0; j < 8; ++j)
      out[128 * j] = make_float4(dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]);
    fence_proxy_async();
    mbarrier_arrive(&shared.share_full[group]);
    parity ^= 1U;
  };
  // All steps of the current tile.
  const auto take_steps = [&] {
    issue_s();
    finish();
    while (true) {
      const int stage = at.stage;
      std::uint32_t probabilities[T::kQueries / 4];
      std::uint32_t ds[T::kQueries / 4];
      float dq[32];
      round_step<T>(probabilities, ds, s, dp, shared.delta[stage] + lane % 4 * 2);
      mbarrier_wait(&shared.ds_empty, parity ^ 1U);  // both have read that of the step before
      stage_ds<T>(ds, shared.ds[0] + (group * 4 + warp) * 2048);
      fence_proxy_async();
      const auto finish_gradients = [&] {
        pin_registers(dv);
        pin_registers(dk);
        pin_registers(probabilities);
        pin_registers(ds);
      };
      finish_gradients();
      wgmma_fence();
      issue_weighted_rows<T::kHeadDim, T::kQueries>(dv, probabilities, shared.d_o[stage]);
      issue_weighted_rows<T::kHeadDim, T::kQueries>(dk, ds, shared.q[stage]);
      wgmma_commit_group();
      named_barrier_sync(kBothGroups, 256);  // dS of both is there
      pin_registers(dq);
      wgmma_fence();
      issue_dq<T>(dq, shared.ds[T::kPanels == 2 ? group : 0],
                  shared.k[kv_at.stage] + (T::kPanels == 2 ? 0 : group * T::kKeys * 128));
      wgmma_commit_group();
      wgmma_wait_group<1>();
      finish_gradients();
      mbarrier_arrive(&shared.empty[stage]);  // by every lane, for the statistics that it read
      at.next();
      steps.next(tile(), p);
      wgmma_wait_group<0>();
      pin_registers(dq);
      if (lane == 0) mbarrier_arrive(&shared.ds_empty);
      if (steps.done(tile(), p)) {
        hand_over(dq);
        return;
      }
      issue_s();  // ptxas serialises all products if this one is issued ahead of the wait for dq
      hand_over(dq);
      finish();
    }
  };

  while (true) {
    mbarrier_wait(&shared.kv_full[kv_at.stage], kv_at.parity);
    if (tile().index < 0) return;
    steps = StepsFromLast<T>(tile(), p);
#pragma unroll
    for (int i = 0; i < T::kHeadDim / 2; ++i) dk[i] = dv[i] = 0;
    if (!steps.done(tile(), p)) take_steps();
    // K and V become the staging room of dK and dV once both warpgroups are done with all keys.
    named_barrier_sync(kBothGroups, 256);
    store_key_gradients<T>(shared, kv_at.stage, (group * 64 + warp * 16) * 128, tile(),
                           group_key() + warp * 16, dk, dv, p);
    mbarrier_arrive(&shared.kv_empty[kv_at.stage]);
    kv_at.next();
  }
}

template <class T, bool kCausal>
__global__ void __launch_bounds__(T::kThreads, 1)
    attention_backward_inside_kernel(const __grid_constant__ BackwardMaps maps,
                                     const __grid_constant__ BackwardParameters p) {
  extern __shared__ unsigned char raw[];
  auto& shared = aligned_shared<Shared<T>>(raw);
  if (threadIdx.x == 0) begin_barriers<T>(shared, maps);
  __syncthreads();
  join_call();
  const int group = uniform_warp_index() / 4;
  if (group == 0) {
    setmaxnreg_dec<T::kProducerRegisters>();
    const int warp = uniform_warp_index();
    if (warp == 0) produce_tiles<T, kCausal, StepsFromLast<T>>(shared, maps, p);
    if ((warp == 1 || warp == 2) && threadIdx.x % 32 == 0) add_shares<T>(shared, warp - 1, p);
  } else {
    setmaxnreg_inc<T::kConsumerRegisters>();
    consume<T, kCausal>(shared, group - 1, p);
  }
}

using Tiles128 = Tiles<128, kBackwardQueries128, 1, 3>;
using Tiles64 = Tiles<64, kBackwardQueries64, 2, 2>;

}  // namespace

cudaError_t launch_attention_backward_inside_sm90(int head_dim, bool causal,
                                                  const BackwardMaps& maps,
                                                  const BackwardParameters& parameters, int blocks,
                                                  cudaStream_t stream) {
  return with_tiles<Tiles64, Tiles128>(head_dim, causal, [&](auto tiles, auto masked) {
    using T = decltype(tiles);
    return launch_persistent<attention_backward_inside_kernel<T, decltype(masked)::value>,
                             Shared<T>>(blocks, T::kThreads, stream, maps, parameters);
  });
}

}  // namespace stowage::kernels::attention
