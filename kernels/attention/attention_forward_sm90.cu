// Attention forward on Hopper: O = softmax(scale Q K^T + mask) V and its log-sum-exp, for packed or
// equal documents, grouped-query, causal or full.
//
// Layout: q, k, v, o (tokens, heads, P) bf16 with any strides; lse (H, tokens) fp32.
// Numerics: products in fp32, softmax in fp32 relative to a reference that follows the running
// maximum within 2^8 (attention_softmax.cuh), P rounded to bf16 for the second product. Cost: 4 P
// flops for every visible pair. Deterministic: a tile has one owner.
// Design (FlashAttention-3, arXiv 2407.08608; written from the paper): one producer warp feeds Q
// tiles and rings of K and V tiles by the bulk tensor copy engine; 2 or 3 consumer warpgroups own
// 64 query rows each. A consumer issues S(j) = Q K^T and O += P(j+1) V together and does the
// softmax of S(j) while the other warpgroups' products run; P never leaves the registers. Blocks
// are persistent and draw tiles, longest first; the next tile's Q arrives during this one.
// Limit on one H200: at P = 128 tensor pipe 77 % of cycles, exp 39 %, issue 36 %; at P = 64, T =
// 1024 tensor pipe 43 %, exp 45 %, issue 43 %, most stalls waits for fixed latencies.

#include "kernels/attention/attention_fragment.cuh"
#include "kernels/attention/attention_launch.hpp"
#include "kernels/attention/attention_persistent.cuh"
#include "kernels/attention/attention_products.cuh"
#include "kernels/attention/attention_schedule.cuh"
#include "kernels/attention/attention_softmax.cuh"
#include "kernels/hopper/convert.cuh"
#include "kernels/hopper/cp_async_bulk.cuh"
#include "kernels/hopper/fence.cuh"
#include "kernels/hopper/mbarrier.cuh"
#include "kernels/hopper/named_barrier.cuh"
#include "kernels/hopper/warp.cuh"
#include "kernels/hopper/wgmma.cuh"

namespace stowage::kernels::attention {
namespace {

using namespace hopper;

template <int kHeadDimension, int kConsumerGroups>
struct Tiles {
  static constexpr int kHeadDim = kHeadDimension;
  static constexpr int kConsumers = kConsumerGroups;
  static constexpr int kRows = 64 * kConsumers;  // one wgmma row block for each warpgroup
  static constexpr int kKeys = forward_keys(kHeadDim);
  static constexpr int kStages = kHeadDim == 64 ? 4 : 2;  // of the K and of the V ring: what fits
  static constexpr int kQStages = kHeadDim == 256 ? 1 : 2;
  static constexpr int kThreads = 128 * (kConsumers + 1);
  // The register file: 65536 = 128 * (producer + consumers * consumer).
  static constexpr int kProducerRegisters = kConsumers == 2 ? 24 : 32;
  static constexpr int kConsumerRegisters = kConsumers == 2 ? 240 : 160;
  static constexpr int kQBytes = kRows * kHeadDim * 2;
  static constexpr int kKBytes = kKeys * kHeadDim * 2;
};

template <class T>
struct Shared {
  alignas(1024) unsigned char q[T::kQStages][T::kQBytes];
  alignas(1024) unsigned char k[T::kStages][T::kKBytes];
  alignas(1024) unsigned char v[T::kStages][T::kKBytes];
  Mbarrier q_full[T::kQStages], q_empty[T::kQStages];
  Mbarrier k_full[T::kStages], k_empty[T::kStages];
  Mbarrier v_full[T::kStages], v_empty[T::kStages];
  Tile tile[T::kQStages];
};

/// The first query of a tile in its document. Causal tiles end with the document's last 64 rows and
/// the first of them may begin before it: a cut at the other end would cut the longest tile.
template <class T, bool kCausal>
__device__ __forceinline__ int first_query(const Tile& tile) {
  if (!kCausal) return tile.index * T::kRows;
  const int tiles = (tile.length + T::kRows - 1) / T::kRows;
  return (tile.length + 63) / 64 * 64 - (tiles - tile.index) * T::kRows;
}

/// Keys that any of the `rows` rows from `row` on sees; none for rows outside of the document.
template <bool kCausal>
__device__ __forceinline__ int visible_keys(const Tile& tile, int row, int rows) {
  if (row + rows <= 0 || row >= tile.length) return 0;
  return kCausal ? min(tile.length, row + rows) : tile.length;
}

/// The next tile that has queries; called by a whole warp.
template <class T, bool kCausal>
__device__ __forceinline__ Tile next_query_tile(const ForwardParameters& p) {
  while (true) {
    const Tile tile = next_tile(p.schedule);
    if (tile.index < 0) return tile;
    const QueryRows rows = query_rows(p.queries, tile, first_query<T, kCausal>(tile), T::kRows);
    if (rows.first < rows.end) return tile;
  }
}

template <class T>
__device__ __forceinline__ int key_tiles(int keys) {
  return (keys + T::kKeys - 1) / T::kKeys;
}

template <class T, bool kCausal>
__device__ __forceinline__ void produce(Shared<T>& shared, const CUtensorMap& q_map,
                                        const CUtensorMap& k_map, const CUtensorMap& v_map,
                                        const ForwardParameters& p) {
  const bool leader = threadIdx.x % 32 == 0;
  RingPosition<T::kStages> k_at, v_at;
  RingPosition<T::kQStages> q_at;
  while (true) {
    const Tile tile = next_query_tile<T, kCausal>(p);
    if (leader) {
      mbarrier_wait(&shared.q_empty[q_at.stage], q_at.parity ^ 1U);
      shared.tile[q_at.stage] = tile;
      if (tile.index < 0) {
        mbarrier_arrive(&shared.q_full[q_at.stage]);
      } else {
        const int row = first_query<T, kCausal>(tile);
        mbarrier_arrive_expect_tx(&shared.q_full[q_at.stage], T::kQBytes);
        bulk_load_5d(shared.q[q_at.stage], &q_map, &shared.q_full[q_at.stage], 0,
                     tile.first_row + row - p.queries.first, 0, tile.head, tile.sequence);
        const int kv_head = tile.head / p.heads_per_kv;
        const auto load_k = [&](int j) {
          mbarrier_wait(&shared.k_empty[k_at.stage], k_at.parity ^ 1U);
          mbarrier_arrive_expect_tx(&shared.k_full[k_at.stage], T::kKBytes);
          bulk_load_5d(shared.k[k_at.stage], &k_map, &shared.k_full[k_at.stage], 0,
                       tile.first_row + j * T::kKeys, 0, kv_head, tile.sequence,
                       CachePolicy::evict_last);
          k_at.next();
        };
        // In the consumers' order: K(n-1), then K(j-1) before V(j).
        const int n = key_tiles<T>(visible_keys<kCausal>(tile, row, T::kRows));
        load_k(n - 1);
        for (int j = n - 1; j >= 0; --j) {
          if (j > 0) load_k(j - 1);
          mbarrier_wait(&shared.v_empty[v_at.stage], v_at.parity ^ 1U);
          mbarrier_arrive_expect_tx(&shared.v_full[v_at.stage], T::kKBytes);
          bulk_load_5d(shared.v[v_at.stage], &v_map, &shared.v_full[v_at.stage], 0,
                       tile.first_row + j * T::kKeys, 0, kv_head, tile.sequence,
                       CachePolicy::evict_last);
          v_at.next();
        }
      }
      q_at.next();
    }
    if (tile.index < 0) return;
    __syncwarp();
  }
}

/// Normalises the rows, brings them through shared memory into rows of 16-byte pieces and stores
/// those of the document; `q` is this warp's part of the tile's Q, no longer needed.
template <class T>
__device__ __forceinline__ void store(float (&o)[T::kHeadDim / 2], RowState& state,
                                      unsigned char* q, const Tile& tile, int row,
                                      const ForwardParameters& p) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const QueryRows rows = query_rows(p.queries, tile, row, 16);
  float inverse[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float sum = lanes_sum<4>(state.sum[r]);
    inverse[r] = 1.0F / sum;
    const int my_row = row + lane / 4 + 8 * r;
    if (lane % 4 == 0 && my_row >= rows.first && my_row < rows.end) {
      const int token = tile.sequence * p.schedule.uniform_length + tile.first_row + my_row;
      const std::int64_t count = p.queries.end - p.queries.first;
      p.lse[tile.head * count + token - p.queries.first] =
          state.reference[r] * p.scale + __logf(sum);
    }
  }
  stage_rows<T::kHeadDim>(q, T::kRows * 128, o, inverse);
  fence_proxy_async();  // the next Q overwrites it through the other proxy
  __syncwarp();
  auto* out = static_cast<std::uint16_t*>(p.o) + element(p.o_strides, tile, row, tile.head);
  store_rows<T::kHeadDim>(out, p.o_strides.row, q, T::kRows * 128, rows.end - row,
                          rows.first - row);
}

template <class T, bool kCausal>
__device__ __forceinline__ void consume(Shared<T>& shared, int group, const ForwardParameters& p) {
  const int warp = static_cast<int>(threadIdx.x / 32 % 4);
  const int lane = static_cast<int>(threadIdx.x % 32);
  constexpr int kGroup = 1;  // named barriers of each warpgroup alone
  RingPosition<T::kStages> k_at, v_at;
  RingPosition<T::kQStages> q_at;

  while (true) {
    mbarrier_wait(&shared.q_full[q_at.stage], q_at.parity);
    const Tile tile = shared.tile[q_at.stage];
    if (tile.index < 0) return;
    unsigned char* q = shared.q[q_at.stage] + group * 64 * 128;
    const int tile_row = first_query<T, kCausal>(tile);
    const int group_row = tile_row + group * 64;  // in the document
    const int thread_row = group_row + warp * 16 + lane / 4;
    const int thread_key = lane % 4 * 2;
    const auto mask_tile = [&]<int kKeys>(float(&s)[kKeys], int j) {
      const int first_key = j * T::kKeys;
      if (kCausal ? first_key + 2 * kKeys - 1 > group_row : first_key + 2 * kKeys > tile.length) {
        mask_keys<2 * kKeys, kCausal>(s, thread_row, first_key + thread_key, tile.length);
      }
    };

    float o[T::kHeadDim / 2];
#pragma unroll
    for (int i = 0; i < T::kHeadDim / 2; ++i) o[i] = 0;
    RowState state{{-INFINITY, -INFINITY}, {0, 0}};
    std::uint32_t probabilities[T::kKeys / 4];

    const auto issue_output = [&](const unsigned char* v) {
      wgmma_fence();
      issue_weighted_rows<T::kHeadDim, T::kKeys>(o, probabilities, v);
    };

    // Tiles of keys that no row of this warpgroup sees are released unread.
    const int seen = visible_keys<kCausal>(tile, group_row, 64);
    int j = key_tiles<T>(visible_keys<kCausal>(tile, tile_row, T::kRows)) - 1;
    for (const int last = key_tiles<T>(seen) - 1; j > last; --j) {
      mbarrier_wait(&shared.k_full[k_at.stage], k_at.parity);
      if (lane == 0) mbarrier_arrive(&shared.k_empty[k_at.stage]);
      k_at.next();
      mbarrier_wait(&shared.v_full[v_at.stage], v_at.parity);
      if (lane == 0) mbarrier_arrive(&shared.v_empty[v_at.stage]);
      v_at.next();
    }
    if (seen == 0) {
      mbarrier_arrive(&shared.q_empty[q_at.stage]);
      q_at.next();
      continue;
    }
    const auto begin = [&]<int kKeys>(std::integral_constant<int, kKeys>) {
      float s[kKeys / 2];
      mbarrier_wait(&shared.k_full[k_at.stage], k_at.parity);
      wgmma_fence();
      issue_scores<T::kHeadDim, T::kRows, T::kKeys, kKeys>(s, q, shared.k[k_at.stage]);
      wgmma_commit_group();
      wgmma_wait_group<0>();
      pin_registers(s);
      if (lane == 0) mbarrier_arrive(&shared.k_empty[k_at.stage]);
      k_at.next();
      mask_tile(s, j);
      row_maximum<kKeys>(state.reference, s, state);
      exponentiate<kKeys>(s, state, p.scale_log2);
      pack<T::kKeys, kKeys>(probabilities, s);
    };
    // Of the last keys a half may be seen.
    if (seen - j * T::kKeys <= T::kKeys / 2) {
      begin(std::integral_constant<int, T::kKeys / 2>{});
    } else {
      begin(std::integral_constant<int, T::kKeys>{});
    }
    for (--j; j >= 0; --j) {
      float s[T::kKeys / 2];
      mbarrier_wait(&shared.k_full[k_at.stage], k_at.parity);
      mbarrier_wait(&shared.v_full[v_at.stage], v_at.parity);
      pin_registers(o);
      pin_registers(probabilities);
      wgmma_fence();
      issue_scores<T::kHeadDim, T::kRows, T::kKeys>(s, q, shared.k[k_at.stage]);
      wgmma_commit_group();
      issue_output(shared.v[v_at.stage]);
      wgmma_commit_group();
      wgmma_wait_group<1>();
      pin_registers(s);
      if (lane == 0) mbarrier_arrive(&shared.k_empty[k_at.stage]);
      k_at.next();
      mask_tile(s, j);
      float maximum[2];
      float rescale[2];
      row_maximum<T::kKeys>(maximum, s, state);
      const bool moves = reference_moves(state, maximum, p.scale_log2);
      if (moves) move_reference(rescale, state, maximum, p.scale_log2);
      exponentiate<T::kKeys>(s, state, p.scale_log2);
      wgmma_wait_group<0>();
      pin_registers(o);
      pin_registers(probabilities);
      if (lane == 0) mbarrier_arrive(&shared.v_empty[v_at.stage]);
      v_at.next();
      pack<T::kKeys, T::kKeys>(probabilities, s);
      if (moves) {
#pragma unroll
        for (int i = 0; i < T::kHeadDim / 2; ++i) o[i] *= rescale[i / 2 % 2];
      }
    }
    mbarrier_wait(&shared.v_full[v_at.stage], v_at.parity);
    pin_registers(o);
    pin_registers(probabilities);
    issue_output(shared.v[v_at.stage]);
    wgmma_commit_group();
    wgmma_wait_group<0>();
    pin_registers(o);
    pin_registers(probabilities);
    if (lane == 0) mbarrier_arrive(&shared.v_empty[v_at.stage]);
    v_at.next();

    // All four warps are done with this warpgroup's Q before it becomes the staging room of O.
    named_barrier_sync(kGroup + group, 128);
    store<T>(o, state, q + warp * 16 * 128, tile, group_row + warp * 16, p);
    mbarrier_arrive(&shared.q_empty[q_at.stage]);  // by every lane, for the rows that it read
    q_at.next();
  }
}

template <class T, bool kCausal>
__global__ void __launch_bounds__(T::kThreads, 1)
    attention_forward_kernel(const __grid_constant__ CUtensorMap q_map,
                             const __grid_constant__ CUtensorMap k_map,
                             const __grid_constant__ CUtensorMap v_map,
                             const __grid_constant__ ForwardParameters p) {
  extern __shared__ unsigned char raw[];
  auto& shared = aligned_shared<Shared<T>>(raw);
  if (threadIdx.x == 0) {
    prefetch_tensor_map(&q_map);
    prefetch_tensor_map(&k_map);
    prefetch_tensor_map(&v_map);
    for (int i = 0; i < T::kQStages; ++i) {
      mbarrier_init(&shared.q_full[i], 1);
      mbarrier_init(&shared.q_empty[i], 128 * T::kConsumers);
    }
    for (int i = 0; i < T::kStages; ++i) {
      mbarrier_init(&shared.k_full[i], 1);
      mbarrier_init(&shared.k_empty[i], 4 * T::kConsumers);
      mbarrier_init(&shared.v_full[i], 1);
      mbarrier_init(&shared.v_empty[i], 4 * T::kConsumers);
    }
    mbarrier_init_fence();
  }
  __syncthreads();
  join_call();
  split_roles<T>([&] { produce<T, kCausal>(shared, q_map, k_map, v_map, p); },
                 [&](int group) { consume<T, kCausal>(shared, group, p); });
}

using Tiles256 = Tiles<256, 2>;
using Tiles128 = Tiles<128, 2>;
using Tiles64 = Tiles<64, 3>;

}  // namespace

int forward_tile_rows(int head_dim) { return head_dim == 64 ? Tiles64::kRows : Tiles128::kRows; }
static_assert(Tiles256::kRows == Tiles128::kRows);

cudaError_t launch_attention_forward_sm90(int head_dim, bool causal, const CUtensorMap& q,
                                          const CUtensorMap& k, const CUtensorMap& v,
                                          const ForwardParameters& parameters, int blocks,
                                          cudaStream_t stream) {
  return with_tiles<Tiles64, Tiles128, Tiles256>(head_dim, causal, [&](auto tiles, auto masked) {
    using T = decltype(tiles);
    return launch_persistent<attention_forward_kernel<T, decltype(masked)::value>, Shared<T>>(
        blocks, T::kThreads, stream, q, k, v, parameters);
  });
}

}  // namespace stowage::kernels::attention
