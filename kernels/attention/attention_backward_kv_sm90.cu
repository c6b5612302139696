// Attention backward on Hopper, part 1: dK and dV, and on request the score gradients for part 2.
//
// For keys j and queries i of a document: P = exp2(scale_log2 q k^T - lse2), dP = d_o v^T,
// dS = P (dP - delta), dV = P^T d_o, dK = scale dS^T q, summed over the heads that share the keys.
// Layout: bf16 rows as in the forward; lse2, delta (H, padded rows) fp32 from attention_delta.cu;
// dS in blocks of 128 keys x 64 queries, bf16 (see stored_block, store_ds).
// Cost: 8 P flops for every visible pair. Deterministic: a block of keys has one owner, which takes
// heads and queries in order, or one for each head (least_in_pieces: lengths alone decide), whose
// gradients are added up in the order of heads.
// Design (FlashAttention-3's backward, arXiv 2407.08608, without its dQ reduction): S and dP are
// computed transposed, so that P^T and dS^T leave the accumulators as register operands of dV and
// dK; two warpgroups own 64 keys each; a producer warp feeds Q and dO; the next step's scores are
// issued behind this step's gradients. dS leaves once, from the registers: four products here and
// one in part 2 need no recomputation, no fp32 dQ in memory and no order between blocks.
// Limit on one H200 at P = 128: tensor pipe 71 % of cycles, shared-memory wavefronts 58 %; S and dP
// are 64 wide, where both operands from shared memory take all its bandwidth. At P = 64, T = 1024:
// tensor pipe 50 %, issue 36 %, and dS is 0.4 GB of the 0.7 GB moved.

#include "kernels/attention/attention_backward_pieces.cuh"
#include "kernels/attention/attention_backward_steps.cuh"
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

template <int kHeadDimension, int kQueryRows = backward_queries(kHeadDimension)>
struct Tiles {
  static constexpr int kHeadDim = kHeadDimension;
  static constexpr int kKeys = key_tile(kHeadDim);  // of a tile, 64 for each of two warpgroups
  static constexpr int kQueries = kQueryRows;       // of a step
  // The one in use, one arriving, and one more: a warpgroup may pass over a step that it does not
  // see while it holds the step before; with two, that deadlocks.
  static constexpr int kStages = 3;
  static constexpr int kTileStages = 2;  // of K and V: this tile's and the next one's
  static constexpr int kThreads = 384;
  static constexpr int kProducerRegisters = 40;
  static constexpr int kConsumerRegisters = 232;
  static constexpr int kKeyBytes = kKeys * kHeadDim * 2;
  static constexpr int kQueryBytes = kQueries * kHeadDim * 2;
};

template <class T>
struct Shared {
  alignas(1024) unsigned char k[T::kTileStages][T::kKeyBytes];
  alignas(1024) unsigned char v[T::kTileStages][T::kKeyBytes];
  alignas(1024) unsigned char q[T::kStages][T::kQueryBytes];
  alignas(1024) unsigned char d_o[T::kStages][T::kQueryBytes];
  alignas(16) float lse2[T::kStages][T::kQueries];
  alignas(16) float delta[T::kStages][T::kQueries];
  Mbarrier kv_full[T::kTileStages], kv_empty[T::kTileStages];
  Mbarrier q_full[T::kStages], d_o_full[T::kStages], empty[T::kStages];
  Tile tile[T::kTileStages];
};

template <class T, bool kCausal, bool kStoreDs>
__device__ __forceinline__ void consume(Shared<T>& shared, int group, const BackwardParameters& p) {
  const int warp = static_cast<int>(threadIdx.x / 32 % 4);
  const int lane = static_cast<int>(threadIdx.x % 32);
  constexpr int kGroup = 1;     // named barriers of each warpgroup alone
  RingPosition<T::kStages> at;  // of the next step that is not begun
  RingPosition<T::kTileStages> kv_at;
  Steps<T> steps;
  float s[T::kQueries / 2];   // scores of the current step, then its probabilities
  float dp[T::kQueries / 2];  // their gradients
  float dk[T::kHeadDim / 2];
  float dv[T::kHeadDim / 2];

  // Of the current tile; reread where needed: registers are short.
  const auto tile = [&]() -> const Tile& { return shared.tile[kv_at.stage]; };
  const auto group_key = [&] { return tile().index * T::kKeys + group * 64; };  // in the document
  // By every lane, for the statistics that it read.
  const auto release = [&](int stage) { mbarrier_arrive(&shared.empty[stage]); };
  // Releases the steps that this warpgroup does not see, and waits for the queries of the next that
  // it sees.
  const auto await_queries = [&] {
    while (!steps.done(tile(), p)) {
      mbarrier_wait(&shared.q_full[at.stage], at.parity);
      if (!kCausal || steps.query + T::kQueries > group_key()) return;
      mbarrier_wait(&shared.d_o_full[at.stage], at.parity);
      release(at.stage);
      at.next();
      steps.next(tile(), p);
    }
  };
  // Whether there is another tile; waits for its first step.
  const auto await_tile = [&] {
    mbarrier_wait(&shared.kv_full[kv_at.stage], kv_at.parity);
    if (tile().index < 0) return false;
    steps = Steps<T>(tile(), p);
    await_queries();
    return true;
  };
  const auto issue_s = [&] { begin_scores<T>(s, shared, kv_at.stage, group * 64, at.stage); };
  const auto finish = [&] {
    finish_scores<T, kCausal>(s, dp, shared, kv_at.stage, group * 64, at, steps.query,
                              p.scale_log2);
  };
  // All steps of the current tile.
  const auto take_steps = [&] {
    issue_s();
    finish();
    while (true) {
      const int stage = at.stage;
      std::uint32_t probabilities[T::kQueries / 4];
      std::uint32_t ds[T::kQueries / 4];
      round_step<T>(probabilities, ds, s, dp, shared.delta[stage] + lane % 4 * 2);
      if (kStoreDs && tile().stored >= 0) {
        const std::int64_t block =
            stored_first(p, tile(), tile().head * p.heads_per_kv + steps.head) +
            stored_block<kCausal>(tile().length, steps.query / 64, tile().index);
        store_ds<T, kCausal>(ds, p.stored + block * kStoredBytes + (group * 4 + warp) * 2048,
                             steps.query, group_key(), tile().length);
      }
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
      at.next();
      steps.next(tile(), p);
      await_queries();
      if (steps.done(tile(), p)) {
        wgmma_wait_group<0>();
        finish_gradients();
        release(stage);
        return;
      }
      issue_s();  // the next scores follow the gradients without a gap
      wgmma_wait_group<1>();
      finish_gradients();
      release(stage);
      finish();
    }
  };

  for (; await_tile(); kv_at.next()) {
#pragma unroll
    for (int i = 0; i < T::kHeadDim / 2; ++i) dk[i] = dv[i] = 0;
    if (!steps.done(tile(), p)) take_steps();
    // K and V of these 64 keys become the staging room of dK and dV once all four warps are done.
    named_barrier_sync(kGroup + group, 128);
    if (tile().in_pieces < 0 || join_pieces(tile(), group * 4 + warp, p.heads_per_kv, p, dk, dv)) {
      store_key_gradients<T>(shared, kv_at.stage, (group * 64 + warp * 16) * 128, tile(),
                             group_key() + warp * 16, dk, dv, p);
    }
    mbarrier_arrive(&shared.kv_empty[kv_at.stage]);
  }
}

template <class T, bool kCausal, bool kStoreDs>
__global__ void __launch_bounds__(T::kThreads, 1)
    attention_backward_kv_kernel(const __grid_constant__ BackwardMaps maps,
                                 const __grid_constant__ BackwardParameters p) {
  extern __shared__ unsigned char raw[];
  auto& shared = aligned_shared<Shared<T>>(raw);
  if (threadIdx.x == 0) begin_rings<T>(shared, maps, 256);
  __syncthreads();
  join_call();
  split_roles<T>([&] { produce_tiles<T, kCausal, Steps<T>>(shared, maps, p); },
                 [&](int group) { consume<T, kCausal, kStoreDs>(shared, group, p); });
}

}  // namespace

cudaError_t launch_attention_backward_kv_sm90(int head_dim, bool causal, const BackwardMaps& maps,
                                              const BackwardParameters& parameters, int blocks,
                                              cudaStream_t stream) {
  return with_tiles<Tiles<64>, Tiles<128>>(head_dim, causal, [&](auto tiles, auto masked) {
    using T = decltype(tiles);
    constexpr bool kCausal = decltype(masked)::value;
    return parameters.stored == nullptr
               ? launch_persistent<attention_backward_kv_kernel<T, kCausal, false>, Shared<T>>(
                     blocks, T::kThreads, stream, maps, parameters)
               : launch_persistent<attention_backward_kv_kernel<T, kCausal, true>, Shared<T>>(
                     blocks, T::kThreads, stream, maps, parameters);
  });
}

}  // namespace stowage::kernels::attention
