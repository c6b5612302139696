#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/attention_fragment.cuh"
#include "kernels/attention/attention_launch.hpp"
#include "kernels/attention/attention_products.cuh"
#include "kernels/attention/attention_schedule.cuh"
#include "kernels/hopper/convert.cuh"
#include "kernels/hopper/cp_async_bulk.cuh"
#include "kernels/hopper/fence.cuh"
#include "kernels/hopper/mbarrier.cuh"
#include "kernels/hopper/wgmma.cuh"

/// The steps of the kernels that own keys, attention_backward_kv_sm90.cu,
/// attention_backward_kv256_sm90.cu, attention_backward_inside64_sm90.cu and
/// attention_backward_inside128_sm90.cu: a tile is 128 keys of one kv head, 64 of heads of 256, a
/// step is some queries of one head of its group. T: tile sizes, S: shared memory.
namespace stowage::kernels::attention {

/// Gives a tile the queries that its steps take: those of the call that see any of its keys, from
/// the beginning of a step on.
template <class T, bool kCausal>
__device__ __forceinline__ void choose_queries(Tile& tile, const BackwardParameters& p) {
  const int sees = kCausal ? tile.index * T::kKeys : 0;
  const QueryRows rows = query_rows(p.queries, tile, sees, tile.length - sees);
  tile.first_query = rows.first / T::kQueries * T::kQueries;
  tile.end_query = rows.end;
}

/// Sets the barriers up and fetches the maps; by one thread. `tile_readers` give a tile back.
template <class T, class S>
__device__ __forceinline__ void begin_rings(S& shared, const BackwardMaps& maps, int tile_readers) {
  hopper::prefetch_tensor_map(&maps.q);
  hopper::prefetch_tensor_map(&maps.k);
  hopper::prefetch_tensor_map(&maps.v);
  hopper::prefetch_tensor_map(&maps.d_o);
  for (hopper::Mbarrier& full : shared.kv_full) hopper::mbarrier_init(&full, 1);
  for (hopper::Mbarrier& empty : shared.kv_empty) hopper::mbarrier_init(&empty, tile_readers);
  for (int i = 0; i < T::kStages; ++i) {
    hopper::mbarrier_init(&shared.q_full[i], 1);
    hopper::mbarrier_init(&shared.d_o_full[i], 1);
    hopper::mbarrier_init(&shared.empty[i], 256);
  }
  hopper::mbarrier_init_fence();
}

/// Walks over the steps of a tile: its heads of the group, and of each the tile's queries.
/// Registers are short: what the tile says is read again.
template <class T>
struct Steps {
  int query, head;

  Steps() = default;
  __device__ __forceinline__ Steps(const Tile& tile, const BackwardParameters&)
      : query(tile.first_query),
        head(tile.first_query < tile.end_query ? tile.first_head : tile.end_head) {}

  __device__ __forceinline__ void next(const Tile& tile, const BackwardParameters&) {
    query += T::kQueries;
    if (query >= tile.end_query) {
      query = tile.first_query;
      ++head;
    }
  }

  __device__ __forceinline__ bool done(const Tile& tile, const BackwardParameters&) const {
    return head >= tile.end_head;
  }
};

/// The steps of a tile that takes all heads, from its last queries down, and of each those of all
/// heads.
template <class T>
struct StepsFromLast {
  int query, head;

  StepsFromLast() = default;
  __device__ __forceinline__ StepsFromLast(const Tile& tile, const BackwardParameters&)
      : query(tile.first_query - T::kQueries), head(0) {
    if (tile.first_query < tile.end_query) query = (tile.end_query - 1) / T::kQueries * T::kQueries;
  }

  __device__ __forceinline__ void next(const Tile&, const BackwardParameters& p) {
    if (++head < p.heads_per_kv) return;
    head = 0;
    query -= T::kQueries;
  }

  __device__ __forceinline__ bool done(const Tile& tile, const BackwardParameters&) const {
    return query < tile.first_query;
  }
};

/// Brings a tile's keys and values, then Q, dO and their statistics for all of its steps, in the
/// order of Walk; by one thread.
template <class T, class Walk, class S>
__device__ __forceinline__ void produce_tile(S& shared, const BackwardMaps& maps,
                                             const BackwardParameters& p, const Tile& tile,
                                             int kv_stage, hopper::RingPosition<T::kStages>& at) {
  hopper::Mbarrier* full = &shared.kv_full[kv_stage];
  hopper::mbarrier_arrive_expect_tx(full, 2 * T::kKeyBytes);
  const int key_row = tile.first_row + tile.index * T::kKeys;
  const int sequence = tile.sequence;
  hopper::bulk_load_5d(shared.k[kv_stage], &maps.k, full, 0, key_row, 0, tile.head, sequence);
  hopper::bulk_load_5d(shared.v[kv_stage], &maps.v, full, 0, key_row, 0, tile.head, sequence);
  constexpr int kStatBytes = T::kQueries * 4;
  const int padded = padded_first(p, tile.document) - tile.first_row;
  for (Walk steps(tile, p); !steps.done(tile, p); steps.next(tile, p)) {
    const int head = tile.head * p.heads_per_kv + steps.head;
    const int row = tile.first_row + steps.query;
    const std::int64_t statistics = head * p.padded_rows + (padded + row);
    hopper::mbarrier_wait(&shared.empty[at.stage], at.parity ^ 1U);
    hopper::mbarrier_arrive_expect_tx(&shared.q_full[at.stage], T::kQueryBytes + kStatBytes);
    hopper::bulk_load_5d(shared.q[at.stage], &maps.q, &shared.q_full[at.stage], 0,
                         row - p.queries.first, 0, head, sequence);
    hopper::bulk_load(shared.lse2[at.stage], p.lse2 + statistics, kStatBytes,
                      &shared.q_full[at.stage]);
    hopper::mbarrier_arrive_expect_tx(&shared.d_o_full[at.stage], T::kQueryBytes + kStatBytes);
    hopper::bulk_load_5d(shared.d_o[at.stage], &maps.d_o, &shared.d_o_full[at.stage], 0,
                         row - p.queries.first, 0, head, sequence);
    hopper::bulk_load(shared.delta[at.stage], p.delta + statistics, kStatBytes,
                      &shared.d_o_full[at.stage]);
    at.next();
  }
}

/// Draws the next tile; by a whole warp. Where T takes a tile of the schedule in parts, the
/// schedule counts each kv head once for each of them. A part without keys is passed over, unless
/// all keys are visible: part 2 then reads its dS, which is 0.
template <class T, bool kCausal>
__device__ __forceinline__ Tile next_keys(const BackwardParameters& p) {
  constexpr int kParts = key_parts(T::kHeadDim);
  Tile tile = next_key_tile(p.schedule, p.heads_per_kv);
  if constexpr (kParts > 1) {
    const auto take_part = [&] {
      tile.index = tile.index * kParts + tile.head % kParts;
      tile.head /= kParts;
      return !kCausal || tile.index * T::kKeys < tile.length;
    };
    while (tile.index >= 0 && !take_part()) tile = next_key_tile(p.schedule, p.heads_per_kv);
  }
  return tile;
}

/// Draws tiles and brings them, until none is left; by one warp.
template <class T, bool kCausal, class Walk, class S>
__device__ __forceinline__ void produce_tiles(S& shared, const BackwardMaps& maps,
                                              const BackwardParameters& p) {
  const bool leader = threadIdx.x % 32 == 0;
  hopper::RingPosition<T::kStages> at;
  hopper::RingPosition<T::kTileStages> kv_at;
  while (true) {
    Tile tile = next_keys<T, kCausal>(p);
    if (leader) {
      if (tile.index >= 0) {
        tile.stored = stored_place(p, tile.document);
        choose_queries<T, kCausal>(tile, p);
      }
      hopper::mbarrier_wait(&shared.kv_empty[kv_at.stage], kv_at.parity ^ 1U);
      shared.tile[kv_at.stage] = tile;
      if (tile.index < 0) {
        hopper::mbarrier_arrive(&shared.kv_full[kv_at.stage]);
      } else {
        produce_tile<T, Walk>(shared, maps, p, tile, kv_at.stage, at);
      }
    }
    kv_at.next();
    if (tile.index < 0) return;
    __syncwarp();
  }
}

/// Sets scores that are not seen to -inf; `key` and `query` are the thread's first ones in the
/// document.
template <class T, bool kCausal>
__device__ __forceinline__ void mask_queries(float (&s)[T::kQueries / 2], int key, int query,
                                             int length) {
#pragma unroll
  for (int j = 0; j < T::kQueries / 8; ++j) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int my_key = key + c / 2 * 8;
      const bool hidden = kCausal ? query + 8 * j + c % 2 < my_key : my_key >= length;
      if (hidden) s[4 * j + c] = -INFINITY;
    }
  }
}

/// Scores (keys x queries) to probabilities; `lse2` begins at the thread's first query.
template <class T>
__device__ __forceinline__ void exponentiate(float (&s)[T::kQueries / 2], const float* lse2,
                                             float scale_log2) {
#pragma unroll
  for (int j = 0; j < T::kQueries / 8; ++j) {
    const float2 l = *reinterpret_cast<const float2*>(lse2 + 8 * j);
    s[4 * j] = hopper::ex2(s[4 * j] * scale_log2 - l.x);
    s[4 * j + 1] = hopper::ex2(s[4 * j + 1] * scale_log2 - l.y);
    s[4 * j + 2] = hopper::ex2(s[4 * j + 2] * scale_log2 - l.x);
    s[4 * j + 3] = hopper::ex2(s[4 * j + 3] * scale_log2 - l.y);
  }
}

/// Issues a warpgroup's scores of the step whose queries lie in `stage`; its keys are the 64 from
/// row `row` of the tile on.
template <class T, class S>
__device__ __forceinline__ void begin_scores(float (&s)[T::kQueries / 2], S& shared, int kv_stage,
                                             int row, int stage) {
  hopper::pin_registers(s);
  hopper::wgmma_fence();
  issue_scores<T::kHeadDim, T::kKeys, T::kQueries>(s, shared.k[kv_stage] + row * 128,
                                                   shared.q[stage]);
  hopper::wgmma_commit_group();
}

/// Makes probabilities of a step's scores, which have arrived; its queries, from `query` of the
/// document on, lie in `stage`, its keys are the 64 from row `row` of the tile on.
template <class T, bool kCausal, class S>
__device__ __forceinline__ void make_probabilities(float (&s)[T::kQueries / 2], S& shared,
                                                   int kv_stage, int row, int stage, int query,
                                                   float scale_log2) {
  const int warp = static_cast<int>(threadIdx.x / 32 % 4);
  const int lane = static_cast<int>(threadIdx.x % 32);
  hopper::pin_registers(s);
  const Tile& tile = shared.tile[kv_stage];
  const int first_key = tile.index * T::kKeys + row;
  if (kCausal ? query < first_key + 63 : first_key + 64 > tile.length) {
    mask_queries<T, kCausal>(s, first_key + warp * 16 + lane / 4, query + lane % 4 * 2,
                             tile.length);
  }
  exponentiate<T>(s, shared.lse2[stage] + lane % 4 * 2, scale_log2);
}

/// Issues the gradients of a step's probabilities when its d_o is there, and makes the
/// probabilities of its scores beside that; `query` is the step's. The gradients are under way.
template <class T, bool kCausal, class S>
__device__ __forceinline__ void make_probabilities_beside(float (&s)[T::kQueries / 2],
                                                          float (&dp)[T::kQueries / 2], S& shared,
                                                          int kv_stage, int row,
                                                          hopper::RingPosition<T::kStages>& at,
                                                          int query, float scale_log2) {
  hopper::mbarrier_wait(&shared.d_o_full[at.stage], at.parity);
  hopper::pin_registers(dp);
  hopper::wgmma_fence();
  issue_scores<T::kHeadDim, T::kKeys, T::kQueries>(dp, shared.v[kv_stage] + row * 128,
                                                   shared.d_o[at.stage]);
  hopper::wgmma_commit_group();
  hopper::wgmma_wait_group<1>();
  make_probabilities<T, kCausal>(s, shared, kv_stage, row, at.stage, query, scale_log2);
}

/// Makes probabilities of these scores, and their gradients beside that; `query` is the step's.
template <class T, bool kCausal, class S>
__device__ __forceinline__ void finish_scores(float (&s)[T::kQueries / 2],
                                              float (&dp)[T::kQueries / 2], S& shared, int kv_stage,
                                              int row, hopper::RingPosition<T::kStages>& at,
                                              int query, float scale_log2) {
  make_probabilities_beside<T, kCausal>(s, dp, shared, kv_stage, row, at, query, scale_log2);
  hopper::wgmma_wait_group<0>();
  hopper::pin_registers(dp);
}

/// Rounds a step's probabilities to the operand of dV.
template <class T>
__device__ __forceinline__ void round_probabilities(std::uint32_t (&probabilities)[T::kQueries / 4],
                                                    const float (&s)[T::kQueries / 2]) {
#pragma unroll
  for (int j = 0; j < T::kQueries / 4; ++j)
    probabilities[j] = hopper::pack_bf16(s[2 * j], s[2 * j + 1]);
}

/// Makes a step's score gradients, rounded to the operand of dK; `delta` begins at the thread's
/// first query.
template <class T>
__device__ __forceinline__ void round_gradients(std::uint32_t (&ds)[T::kQueries / 4],
                                                const float (&s)[T::kQueries / 2],
                                                const float (&dp)[T::kQueries / 2],
                                                const float* delta) {
#pragma unroll
  for (int j = 0; j < T::kQueries / 8; ++j) {
    const float2 d = *reinterpret_cast<const float2*>(delta + 8 * j);
    ds[2 * j] =
        hopper::pack_bf16(s[4 * j] * (dp[4 * j] - d.x), s[4 * j + 1] * (dp[4 * j + 1] - d.y));
    ds[2 * j + 1] = hopper::pack_bf16(s[4 * j + 2] * (dp[4 * j + 2] - d.x),
                                      s[4 * j + 3] * (dp[4 * j + 3] - d.y));
  }
}

/// Both.
template <class T>
__device__ __forceinline__ void round_step(std::uint32_t (&probabilities)[T::kQueries / 4],
                                           std::uint32_t (&ds)[T::kQueries / 4],
                                           const float (&s)[T::kQueries / 2],
                                           const float (&dp)[T::kQueries / 2], const float* delta) {
  round_gradients<T>(ds, s, dp, delta);
  round_probabilities<T>(probabilities, s);
}

/// Stores a warp's 16 keys x queries of dS as 8 x 8 matrices of 128 bytes, the layout of an
/// unswizzled operand; `out` is the warp's place in the block of the 64 queries from `query`, `key`
/// the warpgroup's first. Queries before all of its keys are left out.
template <class T, bool kCausal>
__device__ __forceinline__ void store_ds(const std::uint32_t (&ds)[T::kQueries / 4],
                                         unsigned char* out, int query, int key, int length) {
#pragma unroll
  for (int panel = 0; panel < T::kQueries / 64; ++panel) {
    const int first = query + panel * 64;
    if (first < length && (!kCausal || first + 64 > key)) {
      auto* words = reinterpret_cast<unsigned*>(out) + threadIdx.x % 32;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        __stcs(words + 32 * j, ds[16 * panel + 2 * j]);
        __stcs(words + 256 + 32 * j, ds[16 * panel + 2 * j + 1]);
      }
    }
    out += stored_row_blocks<kCausal>(length, query / 64 + panel) * kStoredBytes;
  }
}

/// Brings a warp's 16 keys of one gradient through `staging`, its own rows of K or V, to memory.
template <class T>
__device__ __forceinline__ void store_gradient(const float (&gradient)[T::kHeadDim / 2],
                                               float factor, void* out, std::int64_t stride,
                                               unsigned char* staging, int rows) {
  const float factors[2] = {factor, factor};
  stage_rows<T::kHeadDim>(staging, T::kKeys * 128, gradient, factors);
  hopper::fence_proxy_async();  // the next K or V overwrites them through the other proxy
  __syncwarp();
  store_rows<T::kHeadDim>(out, stride, staging, T::kKeys * 128, rows);
}

/// dK and dV of a warp's 16 keys, `warp_key` the first of them in the document, through their rows
/// of K and V at `row_offset`, or, if K is in use, both through those of V; in fp32 straight from
/// registers.
template <class T, bool kKeysInUse = false, class S>
__device__ __forceinline__ void store_key_gradients(S& shared, int kv_stage, int row_offset,
                                                    const Tile& tile, int warp_key,
                                                    const float (&dk)[T::kHeadDim / 2],
                                                    const float (&dv)[T::kHeadDim / 2],
                                                    const BackwardParameters& p) {
  const std::int64_t dk_first = element(p.dk_strides, tile, warp_key, tile.head);
  const std::int64_t dv_first = element(p.dv_strides, tile, warp_key, tile.head);
  const int rows = tile.length - warp_key;
  if (p.fp32_keys) {
    store_rows_fp32<T::kHeadDim>(static_cast<float*>(p.dk) + dk_first, p.dk_strides.row, dk,
                                 p.scale, rows);
    store_rows_fp32<T::kHeadDim>(static_cast<float*>(p.dv) + dv_first, p.dv_strides.row, dv, 1.0F,
                                 rows);
    return;
  }
  auto* dk_rows = static_cast<std::uint16_t*>(p.dk) + dk_first;
  auto* dv_rows = static_cast<std::uint16_t*>(p.dv) + dv_first;
  unsigned char* dk_staging = (kKeysInUse ? shared.v : shared.k)[kv_stage] + row_offset;
  store_gradient<T>(dk, p.scale, dk_rows, p.dk_strides.row, dk_staging, rows);
  if constexpr (kKeysInUse) __syncwarp();
  store_gradient<T>(dv, 1.0F, dv_rows, p.dv_strides.row, shared.v[kv_stage] + row_offset, rows);
}

}  // namespace stowage::kernels::attention
