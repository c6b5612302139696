// Attention backward on Hopper, part 1, heads of 256: dK and dV, and on request the score gradients
// for part 2.
//
// Formulas, layout, cost and why the bits repeat: as in attention_backward_kv_sm90.cu. A tile is 64
// keys, half of one of the schedule's.
// Design: dK and dV of 64 keys and 256 columns fill the registers of two warpgroups, so each owns
// one of them. The first makes S^T = K Q^T, the probabilities and dV; the second dP^T = V dO^T, dS
// and dK. Probabilities go from the first to the second in fp32 through shared memory, thread to
// thread, since both products leave the same fragment. So no product is made twice, both have the
// same number of them, and P^T and dS^T are register operands as with narrower heads. The
// warpgroups meet nowhere else: each waits for the exponentials of a step beside the products of
// the other, and stages its gradient in the keys or values that it alone reads.
// Limit on one H200, by count: L2, which gives Q and dO for 64 keys at a time, 4.6 TB/s without dS.
// Shared memory is next: a step takes it for 1.1 times as long as the tensor pipe.

#include "kernels/attention/attention_backward_pieces.cuh"
#include "kernels/attention/attention_backward_steps.cuh"
#include "kernels/attention/attention_launch.hpp"
#include "kernels/attention/attention_persistent.cuh"
#include "kernels/attention/attention_products.cuh"
#include "kernels/attention/attention_schedule.cuh"
#include "kernels/hopper/convert.cuh"
#include "kernels/hopper/fence.cuh"
#include "kernels/hopper/mbarrier.cuh"
#include "kernels/hopper/named_barrier.cuh"
#include "kernels/hopper/wgmma.cuh"

namespace stowage::kernels::attention {
namespace {

using namespace hopper;

struct Tiles {
  static constexpr int kHeadDim = 256;
  static constexpr int kKeys = key_tile(kHeadDim);
  static constexpr int kQueries = backward_queries(kHeadDim);  // of a step
  static constexpr int kStages = 2;                            // of Q, dO and probabilities
  static constexpr int kTileStages = 1;                        // of K and V
  static constexpr int kThreads = 384;
  static constexpr int kProducerRegisters = 40;
  static constexpr int kConsumerRegisters = 232;
  static constexpr int kKeyBytes = kKeys * kHeadDim * 2;
  static constexpr int kQueryBytes = kQueries * kHeadDim * 2;
};
using T = Tiles;

struct Shared {
  alignas(1024) unsigned char k[T::kTileStages][T::kKeyBytes];
  alignas(1024) unsigned char v[T::kTileStages][T::kKeyBytes];
  alignas(1024) unsigned char q[T::kStages][T::kQueryBytes];
  alignas(1024) unsigned char d_o[T::kStages][T::kQueryBytes];
  alignas(16) float probabilities[T::kStages][T::kKeys * T::kQueries];
  alignas(16) float lse2[T::kStages][T::kQueries];
  alignas(16) float delta[T::kStages][T::kQueries];
  Mbarrier kv_full[T::kTileStages], kv_empty[T::kTileStages];
  Mbarrier q_full[T::kStages], d_o_full[T::kStages], empty[T::kStages];
  Mbarrier probabilities_full[T::kStages], probabilities_empty[T::kStages];
  Tile tile[T::kTileStages];
};

/// Where a thread's probabilities of a step lie, 128 float4s apart.
__device__ __forceinline__ float4* handed_over(Shared& shared, int stage) {
  return reinterpret_cast<float4*>(shared.probabilities[stage]) + threadIdx.x % 128;
}

/// Brings a step's probabilities to the other warpgroup.
__device__ __forceinline__ void hand_over(Shared& shared, const RingPosition<T::kStages>& at,
                                          const float (&s)[T::kQueries / 2]) {
  mbarrier_wait(&shared.probabilities_empty[at.stage], at.parity ^ 1U);
  float4* out = handed_over(shared, at.stage);
#pragma unroll
  for (int j = 0; j < T::kQueries / 8; ++j)
    out[128 * j] = make_float4(s[4 * j], s[4 * j + 1], s[4 * j + 2], s[4 * j + 3]);
  mbarrier_arrive(&shared.probabilities_full[at.stage]);
}

/// And takes them there, to make the step's score gradients, rounded to the operand of dK; `delta`
/// begins at the thread's first query.
__device__ __forceinline__ void take_over(std::uint32_t (&ds)[T::kQueries / 4], Shared& shared,
                                          const RingPosition<T::kStages>& at,
                                          const float (&dp)[T::kQueries / 2], const float* delta) {
  mbarrier_wait(&shared.probabilities_full[at.stage], at.parity);
  const float4* in = handed_over(shared, at.stage);
#pragma unroll
  for (int j = 0; j < T::kQueries / 8; ++j) {
    const float4 s = in[128 * j];
    const float2 d = *reinterpret_cast<const float2*>(delta + 8 * j);
    ds[2 * j] = pack_bf16(s.x * (dp[4 * j] - d.x), s.y * (dp[4 * j + 1] - d.y));
    ds[2 * j + 1] = pack_bf16(s.z * (dp[4 * j + 2] - d.x), s.w * (dp[4 * j + 3] - d.y));
  }
  mbarrier_arrive(&shared.probabilities_empty[at.stage]);
}

/// Adds a step's share, weights (keys x queries) times rows of the queries, to a gradient; issued,
/// not waited for.
__device__ __forceinline__ void issue_gradient(float (&gradient)[T::kHeadDim / 2],
                                               std::uint32_t (&weights)[T::kQueries / 4],
                                               const unsigned char* rows) {
  pin_registers(gradient);
  pin_registers(weights);
  wgmma_fence();
  issue_weighted_rows<T::kHeadDim, T::kQueries>(gradient, weights, rows);
  wgmma_commit_group();
}

/// By every lane, for the statistics that it read.
__device__ __forceinline__ void release(Shared& shared, int stage) {
  mbarrier_arrive(&shared.empty[stage]);
}

/// Brings a warp's 16 keys of a gradient through `staging`, its own rows of the operand, to memory:
/// by panels, which takes fewer addresses, and so registers, than whole rows.
__device__ __forceinline__ void store_panels(const float (&gradient)[T::kHeadDim / 2], float factor,
                                             std::uint16_t* out, std::int64_t stride,
                                             unsigned char* staging, int rows) {
  constexpr int kPanelBytes = T::kKeys * 128;
  const float factors[2] = {factor, factor};
  stage_rows<T::kHeadDim>(staging, kPanelBytes, gradient, factors);
  fence_proxy_async();  // the next K or V overwrites them through the other proxy
  __syncwarp();
#pragma unroll
  for (int panel = 0; panel < T::kHeadDim / 64; ++panel)
    store_rows<64>(out + panel * 64, stride, staging + panel * kPanelBytes, 0, rows);
}

/// All tiles of a warpgroup: `take_steps` makes the gradient of one, and the room of `operand`, of
/// the tile's keys or values, stages it.
template <class TakeSteps>
__device__ __forceinline__ void take_tiles(Shared& shared, int group, unsigned char* operand,
                                           float factor, void* out, const HeadStrides& strides,
                                           const BackwardParameters& p, TakeSteps&& take_steps) {
  const int warp = static_cast<int>(threadIdx.x / 32 % 4);
  const Tile& tile = shared.tile[0];
  float gradient[T::kHeadDim / 2];
  for (RingPosition<T::kTileStages> kv_at;; kv_at.next()) {
    mbarrier_wait(&shared.kv_full[0], kv_at.parity);
    if (tile.index < 0) return;
#pragma unroll
    for (float& sum : gradient) sum = 0;
    Steps<T> steps(tile, p);
    if (!steps.done(tile, p)) take_steps(gradient, steps);
    // All four warps are done with the operand before it becomes the staging room.
    named_barrier_sync(1 + group, 128);
    int heads = p.heads_per_kv;
    asm volatile("" : "+r"(heads));  // registers are short: nothing of it waits for the tile's end
    if (tile.in_pieces < 0 || join_pieces(tile, group * 4 + warp, heads, p, gradient)) {
      const int key = tile.index * T::kKeys + warp * 16;
      const int rows = tile.length - key;
      const std::int64_t first = element(strides, tile, key, tile.head);
      if (p.fp32_keys) {
        store_rows_fp32<T::kHeadDim>(static_cast<float*>(out) + first, strides.row, gradient,
                                     factor, rows);
      } else {
        store_panels(gradient, factor, static_cast<std::uint16_t*>(out) + first, strides.row,
                     operand + warp * 16 * 128, rows);
      }
    }
    mbarrier_arrive(&shared.kv_empty[0]);
  }
}

/// The first warpgroup: probabilities and dV.
template <bool kCausal>
__device__ __forceinline__ void make_dv(Shared& shared, const BackwardParameters& p) {
  const Tile& tile = shared.tile[0];
  RingPosition<T::kStages> at;
  float s[T::kQueries / 2];  // scores of the current step, then its probabilities
  const auto issue_s = [&] {
    mbarrier_wait(&shared.q_full[at.stage], at.parity);
    begin_scores<T>(s, shared, 0, 0, at.stage);
  };
  const auto take_steps = [&](float(&dv)[T::kHeadDim / 2], Steps<T>& steps) {
    issue_s();
    wgmma_wait_group<0>();
    while (true) {
      const int stage = at.stage;
      std::uint32_t probabilities[T::kQueries / 4];
      make_probabilities<T, kCausal>(s, shared, 0, 0, stage, steps.query, p.scale_log2);
      hand_over(shared, at, s);
      round_probabilities<T>(probabilities, s);
      mbarrier_wait(&shared.d_o_full[stage], at.parity);
      issue_gradient(dv, probabilities, shared.d_o[stage]);
      at.next();
      steps.next(tile, p);
      if (steps.done(tile, p)) {
        wgmma_wait_group<0>();
        pin_registers(dv);
        pin_registers(probabilities);
        release(shared, stage);
        return;
      }
      issue_s();  // the next scores follow dV without a gap
      wgmma_wait_group<1>();
      pin_registers(dv);
      pin_registers(probabilities);
      release(shared, stage);
      wgmma_wait_group<0>();
    }
  };
  take_tiles(shared, 0, shared.k[0], 1.0F, p.dv, p.dv_strides, p, take_steps);
}

/// The second: score gradients and dK.
template <bool kCausal, bool kStoreDs>
__device__ __forceinline__ void make_dk(Shared& shared, const BackwardParameters& p) {
  const int warp = static_cast<int>(threadIdx.x / 32 % 4);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const Tile& tile = shared.tile[0];
  RingPosition<T::kStages> at;
  float dp[T::kQueries / 2];  // gradients of the current step's probabilities
  const auto issue_dp = [&] {
    mbarrier_wait(&shared.d_o_full[at.stage], at.parity);
    pin_registers(dp);
    wgmma_fence();
    issue_scores<T::kHeadDim, T::kKeys, T::kQueries>(dp, shared.v[0], shared.d_o[at.stage]);
    wgmma_commit_group();
  };
  const auto store = [&](const std::uint32_t(&ds)[T::kQueries / 4], const Steps<T>& steps) {
    // Two tiles of keys share a block of dS.
    const std::int64_t block = stored_first(p, tile, tile.head * p.heads_per_kv + steps.head) +
                               stored_block<kCausal>(tile.length, steps.query / 64, tile.index / 2);
    store_ds<T, kCausal>(ds, p.stored + block * kStoredBytes + (tile.index % 2 * 4 + warp) * 2048,
                         steps.query, tile.index * T::kKeys, tile.length);
  };
  const auto take_steps = [&](float(&dk)[T::kHeadDim / 2], Steps<T>& steps) {
    issue_dp();
    wgmma_wait_group<0>();
    while (true) {
      const int stage = at.stage;
      std::uint32_t ds[T::kQueries / 4];
      pin_registers(dp);
      take_over(ds, shared, at, dp, shared.delta[stage] + lane % 4 * 2);
      mbarrier_wait(&shared.q_full[stage], at.parity);
      issue_gradient(dk, ds, shared.q[stage]);
      if (kStoreDs && tile.stored >= 0) store(ds, steps);
      at.next();
      steps.next(tile, p);
      if (steps.done(tile, p)) {
        wgmma_wait_group<0>();
        pin_registers(dk);
        pin_registers(ds);
        release(shared, stage);
        return;
      }
      issue_dp();
      wgmma_wait_group<1>();
      pin_registers(dk);
      pin_registers(ds);
      release(shared, stage);
      wgmma_wait_group<0>();
    }
  };
  take_tiles(shared, 1, shared.v[0], p.scale, p.dk, p.dk_strides, p, take_steps);
}

template <bool kCausal, bool kStoreDs>
__global__ void __launch_bounds__(T::kThreads, 1)
    attention_backward_kv256_kernel(const __grid_constant__ BackwardMaps maps,
                                    const __grid_constant__ BackwardParameters p) {
  extern __shared__ unsigned char raw[];
  auto& shared = aligned_shared<Shared>(raw);
  if (threadIdx.x == 0) {
    for (Mbarrier& full : shared.probabilities_full) mbarrier_init(&full, 128);
    for (Mbarrier& empty : shared.probabilities_empty) mbarrier_init(&empty, 128);
    begin_rings<T>(shared, maps, 256);
  }
  __syncthreads();
  join_call();
  split_roles<T>([&] { produce_tiles<T, kCausal, Steps<T>>(shared, maps, p); },
                 [&](int group) {
                   if (group == 0) {
                     make_dv<kCausal>(shared, p);
                   } else {
                     make_dk<kCausal, kStoreDs>(shared, p);
                   }
                 });
}

template <bool kCausal>
cudaError_t launch(const BackwardMaps& maps, const BackwardParameters& p, int blocks,
                   cudaStream_t stream) {
  return p.stored == nullptr
             ? launch_persistent<attention_backward_kv256_kernel<kCausal, false>, Shared>(
                   blocks, T::kThreads, stream, maps, p)
             : launch_persistent<attention_backward_kv256_kernel<kCausal, true>, Shared>(
                   blocks, T::kThreads, stream, maps, p);
}

}  // namespace

cudaError_t launch_attention_backward_kv256_sm90(bool causal, const BackwardMaps& maps,
                                                 const BackwardParameters& parameters, int blocks,
                                                 cudaStream_t stream) {
  return causal ? launch<true>(maps, parameters, blocks, stream)
                : launch<false>(maps, parameters, blocks, stream);
}

}  // namespace stowage::kernels::attention
