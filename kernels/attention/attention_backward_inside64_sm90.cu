// Attention backward on Hopper in one pass, heads of 64: dK, dV, and dQ added up in memory.
//
// Formulas, operands and dK, dV as in attention_backward_kv_sm90.cu. The fifth product of a step,
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
// Three threads of a block add, each every third step; turns of a tile's steps depend on tiles
// drawn before it alone, so none of the three waits for another's.
// Waits are rare: tiles take queries from the last ones down, and of each all heads, so that tiles
// of any keys keep the same pace, each behind the one drawn before it by as much as an addition
// takes. The longest tiles can be drawn first, and few idle at the end.
// Design (FlashAttention-3's backward, arXiv 2407.08608; the order of FlashAttention's
// deterministic mode): as attention_backward_kv_sm90.cu, and a third warpgroup makes dQ, from dS of
// both that own keys, in a ring of two, so that those never wait for one another: one takes
// exponentials while the other multiplies. K and V of a warpgroup are operands in registers for a
// whole tile: products 64 wide with both operands in shared memory take all of its bandwidth. K in
// shared memory is read by dQ to the end of a tile, so dK and dV both leave through V's rows.
// Limit: turns, where many tiles of a head run at the same time: each is as far behind the one
// before as an addition takes, some 2 us (heads_per_section in attention_cuda.cpp; NOTES.md).

#include "kernels/attention/attention_backward_shares.cuh"
#include "kernels/attention/attention_backward_steps.cuh"
#include "kernels/attention/attention_fragment.cuh"
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
  static constexpr int kHeadDim = 64;
  static constexpr int kKeys = kBackwardKeys;  // of a tile, 64 for each of two warpgroups
  // Of a step: more leave no registers for K and V.
  static constexpr int kQueries = kInsideQueries;
  static constexpr int kStages = 4;      // of Q and dO
  static constexpr int kTileStages = 2;  // of K and V: this tile's and the next one's
  static constexpr int kDsStages = 2;    // of dS: dQ of a step runs beside the next step
  static constexpr int kAdders = 3;      // threads that add, each with room for a share
  static constexpr int kThreads = 512;
  // Of 512 for a thread of each warpgroup: the producer's, two that own keys, one that makes dQ.
  static constexpr int kProducerRegisters = 32;
  static constexpr int kConsumerRegisters = 200;
  static constexpr int kDqRegisters = 80;
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
  alignas(1024) unsigned char ds[T::kDsStages][T::kDsBytes];
  alignas(1024) float share[T::kAdders][kSumBlock];  // on their way to the sums
  alignas(16) float lse2[T::kStages][T::kQueries];
  alignas(16) float delta[T::kStages][T::kQueries];
  Mbarrier kv_full[T::kTileStages], kv_empty[T::kTileStages];
  Mbarrier q_full[T::kStages], d_o_full[T::kStages], empty[T::kStages];
  Mbarrier ds_full[T::kDsStages], ds_empty[T::kDsStages];
  Mbarrier share_full[T::kAdders], share_empty[T::kAdders];
  Tile tile[T::kTileStages];
};

__device__ __forceinline__ void begin_barriers(Shared& shared, const BackwardMaps& maps) {
  for (int i = 0; i < T::kDsStages; ++i) {
    mbarrier_init(&shared.ds_full[i], 8);   // a lane of each warp that owns keys
    mbarrier_init(&shared.ds_empty[i], 4);  // a lane of each warp that makes dQ
  }
  for (int i = 0; i < T::kAdders; ++i) {
    mbarrier_init(&shared.share_full[i], 4);
    mbarrier_init(&shared.share_empty[i], 1);
  }
  begin_rings<T>(shared, maps, 256 + 128 + T::kAdders);
}

/// Adds the shares of every kAdders-th step to the sums, each in its turn; by one thread.
__device__ __forceinline__ void add_shares(Shared& shared, int adder, const BackwardParameters& p) {
  const int head_blocks = static_cast<int>(p.padded_rows / 64);
  RingPosition<T::kTileStages> kv_at;
  std::uint32_t parity = 0;
  int others = adder;  // steps of other adders until the next of this one
  while (true) {
    mbarrier_wait(&shared.kv_full[kv_at.stage], kv_at.parity);
    const Tile tile = shared.tile[kv_at.stage];
    mbarrier_arrive(&shared.kv_empty[kv_at.stage]);
    kv_at.next();
    if (tile.index < 0) return;
    const int document = padded_first(p, tile.document) / 64;
    for (StepsFromLast<T> steps(tile, p); !steps.done(tile, p); steps.next(tile, p)) {
      if (others-- > 0) continue;
      others = T::kAdders - 1;
      const int head = tile.head * p.heads_per_kv + steps.head;
      const int block = head * head_blocks + document + steps.query / 64;
      add_share(p.sums + std::int64_t{block} * kSumBlock, p.turns + block, tile.index,
                shared.share[adder], &shared.share_full[adder], &shared.share_empty[adder], parity);
      parity ^= 1U;
    }
  }
}

/// Makes the share of dQ of every step from dS of both warpgroups that own keys.
__device__ __forceinline__ void make_dq(Shared& shared, const BackwardParameters& p) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  RingPosition<T::kTileStages> kv_at;
  RingPosition<T::kDsStages> ds_at;
  RingPosition<T::kAdders> share_at;
  float dq[32];
  while (true) {
    mbarrier_wait(&shared.kv_full[kv_at.stage], kv_at.parity);
    const Tile& tile = shared.tile[kv_at.stage];
    if (tile.index < 0) return;
    for (StepsFromLast<T> steps(tile, p); !steps.done(tile, p); steps.next(tile, p)) {
      mbarrier_wait(&shared.ds_full[ds_at.stage], ds_at.parity);
      pin_registers(dq);
      wgmma_fence();
      issue_dq<T::kKeys>(dq, shared.ds[ds_at.stage], shared.k[kv_at.stage]);
      wgmma_commit_group();
      wgmma_wait_group<0>();
      pin_registers(dq);
      if (lane == 0) mbarrier_arrive(&shared.ds_empty[ds_at.stage]);
      ds_at.next();
      mbarrier_wait(&shared.share_empty[share_at.stage], share_at.parity ^ 1U);
      stage_share(dq, shared.share[share_at.stage]);
      __syncwarp();
      if (lane == 0) mbarrier_arrive(&shared.share_full[share_at.stage]);
      share_at.next();
    }
    mbarrier_arrive(&shared.kv_empty[kv_at.stage]);
    kv_at.next();
  }
}

/// out (keys x queries) = the warpgroup's rows of K or V, in registers, times rows of Q or dO.
__device__ __forceinline__ void issue_product(float (&out)[T::kQueries / 2],
                                              std::uint32_t (&keys)[T::kHeadDim / 4],
                                              const unsigned char* queries) {
  pin_registers(out);
  pin_registers(keys);
  wgmma_fence();
  issue_scores<T::kHeadDim, T::kQueries>(out, keys, queries);
  wgmma_commit_group();
}

template <bool kCausal>
__device__ __forceinline__ void consume(Shared& shared, int group, const BackwardParameters& p) {
  const int warp = static_cast<int>(threadIdx.x / 32 % 4);
  const int lane = static_cast<int>(threadIdx.x % 32);
  constexpr int kGroup = 1;     // named barriers of each warpgroup alone
  RingPosition<T::kStages> at;  // of the next step that is not begun
  RingPosition<T::kTileStages> kv_at;
  RingPosition<T::kDsStages> ds_at;
  StepsFromLast<T> steps{};
  float s[T::kQueries / 2];   // scores of the current step, then its probabilities
  float dp[T::kQueries / 2];  // their gradients
  float dk[T::kHeadDim / 2];
  float dv[T::kHeadDim / 2];
  std::uint32_t k[T::kHeadDim / 4];  // of the warp's 16 keys, bf16 pairs
  std::uint32_t v[T::kHeadDim / 4];

  // Of the current tile; reread where needed: registers are short.
  const auto tile = [&]() -> const Tile& { return shared.tile[kv_at.stage]; };
  const auto issue_s = [&] {
    mbarrier_wait(&shared.q_full[at.stage], at.parity);
    issue_product(s, k, shared.q[at.stage]);
  };
  const auto issue_dp = [&] {
    mbarrier_wait(&shared.d_o_full[at.stage], at.parity);
    issue_product(dp, v, shared.d_o[at.stage]);
  };
  // Brings the warp's dS to where dQ is made.
  const auto hand_over = [&](const std::uint32_t(&ds)[T::kQueries / 4]) {
    mbarrier_wait(&shared.ds_empty[ds_at.stage], ds_at.parity ^ 1U);
    stage_ds(ds, shared.ds[ds_at.stage] + (group * 4 + warp) * 2048);
    fence_proxy_async();
    __syncwarp();
    if (lane == 0) mbarrier_arrive(&shared.ds_full[ds_at.stage]);
    ds_at.next();
  };
  const auto finish_scores = [&] {
    issue_dp();
    wgmma_wait_group<1>();
    make_probabilities<T, kCausal>(s, shared, kv_at.stage, group * 64, at.stage, steps.query,
                                   p.scale_log2);
  };
  // All steps of the current tile.
  const auto take_steps = [&] {
    issue_s();
    finish_scores();
    while (true) {
      const int stage = at.stage;
      std::uint32_t probabilities[T::kQueries / 4];
      std::uint32_t ds[T::kQueries / 4];
      wgmma_wait_group<0>();
      pin_registers(dp);
      round_step<T>(probabilities, ds, s, dp, shared.delta[stage] + lane % 4 * 2);
      hand_over(ds);
      const auto pin_operands = [&] {
        pin_registers(dv);
        pin_registers(dk);
        pin_registers(probabilities);
        pin_registers(ds);
        pin_registers(k);
        pin_registers(v);
      };
      pin_operands();
      wgmma_fence();
      issue_weighted_rows<T::kHeadDim, T::kQueries>(dv, probabilities, shared.d_o[stage]);
      issue_weighted_rows<T::kHeadDim, T::kQueries>(dk, ds, shared.q[stage]);
      wgmma_commit_group();
      at.next();
      steps.next(tile(), p);
      if (steps.done(tile(), p)) {
        wgmma_wait_group<0>();
        pin_operands();
        mbarrier_arrive(&shared.empty[stage]);
        return;
      }
      issue_s();
      wgmma_wait_group<1>();
      pin_operands();
      mbarrier_arrive(&shared.empty[stage]);  // by every lane, for the statistics that it read
      finish_scores();
    }
  };

  while (true) {
    mbarrier_wait(&shared.kv_full[kv_at.stage], kv_at.parity);
    if (tile().index < 0) return;
    steps = StepsFromLast<T>(tile(), p);
    const int first_row = group * 64 + warp * 16;
    load_rows(k, shared.k[kv_at.stage], first_row);
    load_rows(v, shared.v[kv_at.stage], first_row);
#pragma unroll
    for (int i = 0; i < T::kHeadDim / 2; ++i) dk[i] = dv[i] = 0;
    if (!steps.done(tile(), p)) take_steps();
    named_barrier_sync(kGroup + group, 128);  // its warps leave for memory together
    store_key_gradients<T, true>(shared, kv_at.stage, first_row * 128, tile(),
                                 tile().index * T::kKeys + first_row, dk, dv, p);
    mbarrier_arrive(&shared.kv_empty[kv_at.stage]);
    kv_at.next();
  }
}

template <bool kCausal>
__global__ void __launch_bounds__(T::kThreads, 1)
    attention_backward_inside64_kernel(const __grid_constant__ BackwardMaps maps,
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
    if (warp == 0) produce_tiles<T, kCausal, StepsFromLast<T>>(shared, maps, p);
    if (warp > 0 && warp <= T::kAdders && threadIdx.x % 32 == 0) add_shares(shared, warp - 1, p);
  } else if (group == 3) {
    setmaxnreg_dec<T::kDqRegisters>();
    make_dq(shared, p);
  } else {
    setmaxnreg_inc<T::kConsumerRegisters>();
    consume<kCausal>(shared, group - 1, p);
  }
}

}  // namespace

cudaError_t launch_attention_backward_inside64_sm90(bool causal, const BackwardMaps& maps,
                                                    const BackwardParameters& parameters,
                                                    int blocks, cudaStream_t stream) {
  return causal ? launch_persistent<attention_backward_inside64_kernel<true>, Shared>(
                      blocks, T::kThreads, stream, maps, parameters)
                : launch_persistent<attention_backward_inside64_kernel<false>, Shared>(
                      blocks, T::kThreads, stream, maps, parameters);
}

}  // namespace stowage::kernels::attention
