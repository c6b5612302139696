// Attention backward on Hopper in one pass, heads of 128: dK, dV, and dQ added up in memory.
//
// Formulas, layout, cost, why the bits repeat and no wait is for ever: as in
// attention_backward_inside64_sm90.cu; 64 queries have two blocks of sums, of 64 columns each.
// Design (FlashAttention-3's backward, arXiv 2407.08608; the order of FlashAttention's
// deterministic mode): as attention_backward_kv_sm90.cu, but both warpgroups take every step
// together, because dS of both lies in shared memory for dS K, of which each makes 64 columns;
// registers are short for a third one. dV runs while dS is made and the warpgroups meet; then dS K
// goes ahead of dK, so that the share leaves beside dK, and the next scores follow dK without a
// gap. Scores lie in the registers of the share. Two more warps of the producer's warpgroup wait
// for turns and drive the copies' additions, one for each consumer.

#include "kernels/attention/attention_backward_shares.cuh"
#include "kernels/attention/attention_backward_steps.cuh"
#include "kernels/attention/attention_launch.hpp"
#include "kernels/attention/attention_persistent.cuh"
#include "kernels/attention/attention_products.cuh"
#include "kernels/attention/attention_schedule.cuh"
#include "kernels/hopper/fence.cuh"
#include "kernels/hopper/mbarrier.cuh"
#include "kernels/hopper/named_barrier.cuh"
#include "kernels/hopper/wgmma.cuh"

namespace stowage::kernels::attention {
namespace {

using namespace hopper;

struct Tiles {
  static constexpr int kHeadDim = 128;
  static constexpr int kKeys = kBackwardKeys;      // of a tile, 64 for each of two warpgroups
  static constexpr int kQueries = kInsideQueries;  // of a step
  static constexpr int kStages = 3;                // of Q and dO
  static constexpr int kTileStages = 1;            // of K and V
  static constexpr int kThreads = 384;
  static constexpr int kProducerRegisters = 24;
  static constexpr int kConsumerRegisters = 240;  // with 232, ptxas serialises all products
  static constexpr int kKeyBytes = kKeys * kHeadDim * 2;
  static constexpr int kQueryBytes = kQueries * kHeadDim * 2;
  static constexpr int kDsBytes = kKeys * kQueries * 2;
};
using T = Tiles;

struct Shared {
  alignas(1024) unsigned char k[T::kTileStages][T::kKeyBytes];
  alignas(1024) unsigned char v[T::kTileStages][T::kKeyBytes];
  alignas(1024) unsigned char q[T::kStages][T::kQueryBytes];
  alignas(1024) unsigned char d_o[T::kStages][T::kQueryBytes];
  alignas(1024) unsigned char ds[T::kDsBytes];
  alignas(1024) float share[2][kSumBlock];  // of each warpgroup, on its way to the sums
  alignas(16) float lse2[T::kStages][T::kQueries];
  alignas(16) float delta[T::kStages][T::kQueries];
  Mbarrier kv_full[T::kTileStages], kv_empty[T::kTileStages];
  Mbarrier q_full[T::kStages], d_o_full[T::kStages], empty[T::kStages];
  Mbarrier ds_empty, share_full[2], share_empty[2];
  Tile tile[T::kTileStages];
};

__device__ __forceinline__ void begin_barriers(Shared& shared, const BackwardMaps& maps) {
  mbarrier_init(&shared.ds_empty, 8);  // a lane of each consumer warp
  for (int i = 0; i < 2; ++i) {
    mbarrier_init(&shared.share_full[i], 128);
    mbarrier_init(&shared.share_empty[i], 1);
  }
  begin_rings<T>(shared, maps, 256 + 2);  // the consumers, and the adders for the tile
}

/// Adds the shares of warpgroup `group` to the sums, each in its turn; by one thread. Steps are
/// those of StepsFromLast, with few registers.
__device__ __forceinline__ void add_shares(Shared& shared, int group, const BackwardParameters& p) {
  constexpr int kColumnBlocks = T::kHeadDim / 64;
  const int head_blocks = static_cast<int>(p.padded_rows / 64) * kColumnBlocks;
  RingPosition<T::kTileStages> kv_at;
  std::uint32_t parity = 0;
  while (true) {
    mbarrier_wait(&shared.kv_full[kv_at.stage], kv_at.parity);
    const Tile tile = shared.tile[kv_at.stage];
    mbarrier_arrive(&shared.kv_empty[kv_at.stage]);
    kv_at.next();
    if (tile.index < 0) return;
    const int turn = tile.index;  // all tiles of lower keys see these queries, too
    const int last = (tile.end_query - 1) / 64;
    int rows = tile.first_query < tile.end_query ? last - tile.first_query / 64 + 1 : 0;
    int block = tile.head * p.heads_per_kv * head_blocks +
                (padded_first(p, tile.document) / 64 + last) * kColumnBlocks + group;
    for (; rows > 0; --rows) {
#pragma unroll 1
      for (int head = 0; head < p.heads_per_kv; ++head) {
        add_share(p.sums + std::int64_t{block} * kSumBlock, p.turns + block, turn,
                  shared.share[group], &shared.share_full[group], &shared.share_empty[group],
                  parity);
        parity ^= 1U;
        block += head_blocks;
      }
      block -= p.heads_per_kv * head_blocks + kColumnBlocks;
    }
  }
}

template <bool kCausal>
__device__ __forceinline__ void consume(Shared& shared, int group, const BackwardParameters& p) {
  const int warp = static_cast<int>(threadIdx.x / 32 % 4);
  const int lane = static_cast<int>(threadIdx.x % 32);
  constexpr int kBothGroups = 1;  // named barrier
  RingPosition<T::kStages> at;    // of the next step that is not begun
  RingPosition<T::kTileStages> kv_at;
  std::uint32_t parity = 0;  // of this step's dS and share
  StepsFromLast<T> steps{};
  float s[T::kQueries / 2];   // scores of the current step, then its probabilities, then its share
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
  const auto make_p = [&] {
    make_probabilities_beside<T, kCausal>(s, dp, shared, kv_at.stage, group * 64, at, steps.query,
                                          p.scale_log2);
  };
  // Brings this warpgroup's share to its adder.
  const auto hand_over = [&] {
    mbarrier_wait(&shared.share_empty[group], parity ^ 1U);
    stage_share(s, shared.share[group]);
    mbarrier_arrive(&shared.share_full[group]);
    parity ^= 1U;
  };
  // All steps of the current tile.
  const auto take_steps = [&] {
    issue_s();
    make_p();
    while (true) {
      const int stage = at.stage;
      std::uint32_t probabilities[T::kQueries / 4];
      std::uint32_t ds[T::kQueries / 4];
      round_probabilities<T>(probabilities, s);
      pin_registers(dv);
      pin_registers(probabilities);
      wgmma_fence();
      issue_weighted_rows<T::kHeadDim, T::kQueries>(dv, probabilities, shared.d_o[stage]);
      wgmma_commit_group();
      wgmma_wait_group<1>();  // dP is there
      pin_registers(dp);
      round_gradients<T>(ds, s, dp, shared.delta[stage] + lane % 4 * 2);
      mbarrier_wait(&shared.ds_empty, parity ^ 1U);  // both have read that of the step before
      stage_ds(ds, shared.ds + (group * 4 + warp) * 2048);
      fence_proxy_async();
      named_barrier_sync(kBothGroups, 256);  // dS of both is there
      pin_registers(s);
      pin_registers(dk);
      pin_registers(ds);
      wgmma_fence();
      issue_dq<T::kKeys>(s, shared.ds, shared.k[kv_at.stage] + group * T::kKeys * 128);
      wgmma_commit_group();
      issue_weighted_rows<T::kHeadDim, T::kQueries>(dk, ds, shared.q[stage]);
      wgmma_commit_group();
      at.next();
      steps.next(tile(), p);
      wgmma_wait_group<1>();  // dV and the share are there
      pin_registers(dv);
      pin_registers(probabilities);
      pin_registers(s);
      if (lane == 0) mbarrier_arrive(&shared.ds_empty);
      hand_over();
      if (steps.done(tile(), p)) {
        wgmma_wait_group<0>();
        pin_registers(dk);
        pin_registers(ds);
        mbarrier_arrive(&shared.empty[stage]);
        return;
      }
      issue_s();
      wgmma_wait_group<1>();
      pin_registers(dk);
      pin_registers(ds);
      mbarrier_arrive(&shared.empty[stage]);  // by every lane, for the statistics that it read
      make_p();
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

template <bool kCausal>
__global__ void __launch_bounds__(T::kThreads, 1)
    attention_backward_inside128_kernel(const __grid_constant__ BackwardMaps maps,
                                        const __grid_constant__ BackwardParameters p) {
  extern __shared__ unsigned char raw[];
  auto& shared = aligned_shared<Shared>(raw);
  if (threadIdx.x == 0) begin_barriers(shared, maps);
  __syncthreads();
  join_call();
  const int group = uniform_warp_index() / 4;
  if (group == 0) {
    setmaxnreg_dec<T::kProducerRegisters>();
    const int warp = uniform_warp_index();
    if (warp == 0) {
      produce_tiles<T, kCausal, StepsFromLast<T>>(shared, maps, p);
    } else if (warp <= 2 && threadIdx.x % 32 == 0) {
      add_shares(shared, warp - 1, p);
    }
  } else {
    setmaxnreg_inc<T::kConsumerRegisters>();
    consume<kCausal>(shared, group - 1, p);
  }
}

}  // namespace

cudaError_t launch_attention_backward_inside128_sm90(bool causal, const BackwardMaps& maps,
                                                     const BackwardParameters& parameters,
                                                     int blocks, cudaStream_t stream) {
  return causal ? launch_persistent<attention_backward_inside128_kernel<true>, Shared>(
                      blocks, T::kThreads, stream, maps, parameters)
                : launch_persistent<attention_backward_inside128_kernel<false>, Shared>(
                      blocks, T::kThreads, stream, maps, parameters);
}

}  // namespace stowage::kernels::attention
