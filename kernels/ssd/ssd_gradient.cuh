#pragma once

#include "kernels/hopper/cp_async_bulk_prefetch.cuh"
#include "kernels/hopper/mbarrier.cuh"
#include "kernels/ssd/ssd_device.cuh"

/// The frame of the backward kernel (ssd_gradient.cu, where the formulas are): what lies in shared
/// memory, the walk over tiles, and the warps of warpgroup 0, which load, scan and multiply beside
/// the two warpgroups with the matrix products.
namespace stowage::kernels::ssd::gradient_frame {

inline constexpr int kThreads = 384;
inline constexpr int kHelpers = 3;             ///< warps 1 to 3: scans over tokens, <G, S>
inline constexpr int kRowFloats = 4 * kChunk;  ///< rows in, log, step, out
inline constexpr int kIn = 0, kLog = kChunk, kStep = 2 * kChunk, kOut = 3 * kChunk;
inline constexpr int kScale = kRowFloats;  ///< then the scales of S and G
inline constexpr int kStagingBytes = 2048;
inline constexpr int kPairBarrier = 1, kInsideBarrier = 2;
inline constexpr int kRecentChunks = 8;

/// What the warpgroups hand to the helper for one unit, by token.
struct Vectors {
  float row_part[4][kChunk];  ///< sum over a warp's j < i of dt_j E_ij
  float column[kChunk];       ///< sum over i > j of E_ij
  float diagonal[kChunk];     ///< E_jj
  float out[kChunk];          ///< K_j
  float in[kChunk];           ///< R_i
  float skip[kChunk];         ///< dY_t X_t
  float through[4];           ///< halves of <G, S>
};

template <int kStages>
struct Barriers {
  Mbarrier full[kStages], empty[kStages], vectors_full[kStages], vectors_empty[kStages];
  Mbarrier group_full, group_empty;  ///< B and C of a tile
};

/// kColumns: of a unit of this kernel, 64 or a whole head's, whose columns beyond 64 are tiles of
/// their own. The rows of S and G are those columns.
template <int kState, int kColumns>
struct Layout {
  static constexpr int kRest = kColumns - kPart;
  static constexpr int kRestBytes = kChunk * kRest * 2;
  static constexpr int kUnits = kUnitHeads<kColumns>;  ///< of the state pass, that a unit lies in
  static constexpr int kStateTiles = kState / 64;
  static constexpr int kImageTileBytes = kColumns * 128;
  static constexpr int kImageBytes = kStateTiles * kImageTileBytes;
  static constexpr int kImageOffset = 2 * kTileBytes;  ///< in a stage: X, dY, S, G, rests of X, dY
  static constexpr int kRestOffset = kImageOffset + 2 * kImageBytes;
  static constexpr int kStageBytes = kRestOffset + 2 * kRestBytes;
  static constexpr int kStages = kStageBytes > 6 * kTileBytes ? 2 : 3;  ///< as many as fit
  using Barriers = gradient_frame::Barriers<kStages>;
  static constexpr int kFactorFloats = kRowFloats + kUnits * kScaleFloats;
  static constexpr int kBOffset = kStages * kStageBytes;
  static constexpr int kCOffset = kBOffset + kStateTiles * kTileBytes;
  static constexpr int kPairOffset = kCOffset + kStateTiles * kTileBytes;  ///< dCB^T
  static constexpr int kHalfOffset = kPairOffset + kTileBytes;  ///< B in fp16, rows scaled
  static constexpr int kStagingOffset = kHalfOffset + kStateTiles * kTileBytes;
  static constexpr int kRestStagingBytes = kRestBytes / 4;  ///< of a warp that sends dX
  static constexpr int kRestStagingOffset = kStagingOffset + 8 * kStagingBytes;
  static constexpr int kFactorOffset = kRestStagingOffset + kRestBytes;
  static constexpr int kVectorOffset =
      kFactorOffset + kStages * kFactorFloats * static_cast<int>(sizeof(float));
  static constexpr int kRowScaleOffset =  ///< of the rows of B
      kVectorOffset + kStages * static_cast<int>(sizeof(Vectors));
  static constexpr int kBarrierOffset = kRowScaleOffset + kChunk * static_cast<int>(sizeof(float));
  static constexpr int kBytes = kBarrierOffset + (4 * kStages + 2) * 8;
  static constexpr int kLoadBytes = kStageBytes + kFactorFloats * static_cast<int>(sizeof(float));
  /// Which of those units a strip of a unit lies in.
  __device__ __forceinline__ static int unit_of(int unit, int strip) {
    if constexpr (kUnits == 1) return 0;
    return (unit * (kColumns / kStrip) % kStrips + strip) / kStrips;
  }
};

template <class L>
using Ring = RingPosition<L::kStages>;

/// The tiles of a persistent block, (chunk, group) with groups fastest. The first chunks are those
/// of which the state pass wrote the states, or the adjoints, last: they are still in L2.
struct Tile {
  const Sizes& sizes;  // not copied: registers are few
  int index = static_cast<int>(blockIdx.x);
  std::uint32_t parity = 0;  ///< of the tile's use of B and C
  __device__ __forceinline__ explicit Tile(const Sizes& s) : sizes(s) {}
  __device__ __forceinline__ bool valid() const { return index < sizes.chunks * sizes.groups; }
  __device__ __forceinline__ int chunk() const {
    const int chunk = index / sizes.groups + max(sizes.chunks - kRecentChunks, 0);
    return chunk < sizes.chunks ? chunk : chunk - sizes.chunks;
  }
  __device__ __forceinline__ int group() const { return index % sizes.groups; }
  __device__ __forceinline__ void next() {
    index += static_cast<int>(gridDim.x);
    parity ^= 1U;
  }
};

/// The head of each unit of a group in turn.
struct Head {
  int index, part = 0;
  __device__ Head(const Sizes& s, int group) : index(group * (s.heads / s.groups)) {}
  __device__ __forceinline__ void next(const Sizes& s) {
    if (++part < s.parts) return;
    part = 0;
    ++index;
  }
};

template <int kState, int kColumns>
__device__ void load_unit(const GradientParameters& p, int chunk, int unit, std::byte* tiles,
                          float* factors, Mbarrier* barrier) {
  using L = Layout<kState, kColumns>;
  const int token = chunk * kChunk;
  const auto* states = static_cast<const __half*>(p.states);
  const auto* adjoints = static_cast<const __half*>(p.adjoints);
  std::byte* images = tiles + L::kImageOffset;
  mbarrier_arrive_expect_tx(barrier, L::kLoadBytes);
  if constexpr (L::kRest == 0) {
    const std::int64_t image =
        (static_cast<std::int64_t>(chunk) * p.sizes.units + unit) * kPart * kState;
    load_tiles(tiles, &p.x, barrier, unit * kPart, token, CachePolicy::evict_first);
    load_tiles(tiles + kTileBytes, &p.dy, barrier, unit * kPart, token, CachePolicy::evict_first);
    bulk_load(images, states + image, L::kImageBytes, barrier, CachePolicy::evict_first);
    bulk_load(images + L::kImageBytes, adjoints + image, L::kImageBytes, barrier,
              CachePolicy::evict_first);
  } else {
    std::byte* rest = tiles + L::kRestOffset;
    bulk_load_3d(tiles, &p.x, barrier, 0, token, unit, CachePolicy::evict_first);
    bulk_load_3d(tiles + kTileBytes, &p.dy, barrier, 0, token, unit, CachePolicy::evict_first);
    bulk_load_3d(rest, &p.x_rest, barrier, kPart, token, unit, CachePolicy::evict_first);
    bulk_load_3d(rest + L::kRestBytes, &p.dy_rest, barrier, kPart, token, unit,
                 CachePolicy::evict_first);
#pragma unroll 1
    for (int t = 0; t < L::kStateTiles; ++t, images += L::kImageTileBytes) {
      const std::int64_t tile = static_cast<std::int64_t>(chunk) * L::kStateTiles + t;
      const std::int64_t image = (tile * p.sizes.units + unit) * (kColumns * 64);
      bulk_load(images, states + image, L::kImageTileBytes, barrier, CachePolicy::evict_first);
      bulk_load(images + L::kImageBytes, adjoints + image, L::kImageTileBytes, barrier,
                CachePolicy::evict_first);
    }
  }
  const int head = p.sizes.parts == 1 ? unit : unit / p.sizes.parts;
  const float* record =
      p.records + (static_cast<std::int64_t>(chunk) * p.sizes.heads + head) * kRecordFloats;
  bulk_load(factors, record + kRowIn * kChunk, kRowFloats * sizeof(float), barrier);
  const std::int64_t first = chunk * (static_cast<std::int64_t>(p.sizes.units) * kColumns / kPart) +
                             unit * kColumns / kPart;
  bulk_load(factors + kScale, p.scales + first * kScaleFloats,
            L::kUnits * kScaleFloats * sizeof(float), barrier);
}

/// B and C of a later tile to L2: they are loaded only when the tile before is done.
template <int kState, int kColumns>
__device__ void prefetch_group(const GradientParameters& p, const Tile& tile) {
  if (!tile.valid()) return;
  const int column = tile.group() * kState, token = tile.chunk() * kChunk;
  bulk_prefetch_3d(&p.bc, 0, token, (p.sizes.b_column + column) / kPart);
  bulk_prefetch_3d(&p.bc, 0, token, (p.sizes.c_column + column) / kPart);
}

/// Loads a tile: its first units run ahead of B and C, which wait for the tile before.
template <int kState, int kColumns>
__device__ void load_tile(const GradientParameters& p, const Tile& tile,
                          Ring<Layout<kState, kColumns>>& ring, std::byte* shared) {
  using L = Layout<kState, kColumns>;
  auto* barriers = reinterpret_cast<typename L::Barriers*>(shared + L::kBarrierOffset);
  auto* factors = reinterpret_cast<float*>(shared + L::kFactorOffset);
  constexpr int kStages = L::kStages;
  const int units = p.sizes.group_units, chunk = tile.chunk(), first = tile.group() * units;
  for (int u = 0; u < units; ++u, ring.next()) {
    mbarrier_wait(&barriers->empty[ring.stage], ring.parity ^ 1U);
    load_unit<kState, kColumns>(p, chunk, first + u, shared + ring.stage * L::kStageBytes,
                                factors + ring.stage * L::kFactorFloats,
                                &barriers->full[ring.stage]);
    if (u != min(kStages - 1, units) - 1) continue;
    mbarrier_wait(&barriers->group_empty, tile.parity ^ 1U);
    mbarrier_arrive_expect_tx(&barriers->group_full, 2 * L::kStateTiles * kTileBytes);
    const int column = tile.group() * kState, token = tile.chunk() * kChunk;
    load_tiles(shared + L::kBOffset, &p.bc, &barriers->group_full, p.sizes.b_column + column,
               token);
    load_tiles(shared + L::kCOffset, &p.bc, &barriers->group_full, p.sizes.c_column + column,
               token);
    Tile after = tile;
    after.next();
    prefetch_group<kState, kColumns>(p, after);
  }
}

__device__ __forceinline__ float dot8(const uint4& a, const uint4& b) {
  float sum = 0;
  const auto add = [&](std::uint32_t left, std::uint32_t right) {
    const float2 l = unpack_f16(left), r = unpack_f16(right);
    sum += l.x * r.x;
    sum += l.y * r.y;
  };
  add(a.x, b.x);
  add(a.y, b.y);
  add(a.z, b.z);
  add(a.w, b.w);
  return sum;
}

/// Sums over tokens of one unit: the gradient of dt, and the chunk's share of dA and dD. One warp,
/// two tokens a lane.
__device__ inline void finish_unit(const GradientParameters& p, const Vectors& v, float2 dt,
                                   float decay, int chunk, int unit, int lane) {
  constexpr unsigned kAll = 0xFFFFFFFFU;
  const int t = 2 * lane;
  const float2 column = *reinterpret_cast<const float2*>(v.column + t);
  const float2 out = *reinterpret_cast<const float2*>(v.out + t);
  const float2 in = *reinterpret_cast<const float2*>(v.in + t);
  const float2 skip = *reinterpret_cast<const float2*>(v.skip + t);
  const float2 diagonal = *reinterpret_cast<const float2*>(v.diagonal + t);
  float2 rows = make_float2(-dt.x * column.x, -dt.y * column.y);
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    const float2 part = *reinterpret_cast<const float2*>(v.row_part[w] + t);
    rows.x += part.x;
    rows.y += part.y;
  }
  rows.x += in.x;
  rows.y += in.y;
  float suffix = rows.x + rows.y;  // of this lane and all after it
  float prefix = dt.x * out.x + dt.y * out.y;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const float after = __shfl_down_sync(kAll, suffix, step);
    const float before = __shfl_up_sync(kAll, prefix, step);
    if (lane + step < 32) suffix += after;
    if (lane >= step) prefix += before;
  }
  const float earlier = __shfl_up_sync(kAll, prefix, 1);
  prefix = lane == 0 ? 0 : earlier;
  float later = __shfl_down_sync(kAll, suffix, 1);
  if (lane == 31) later = 0;
  const float through = decay * (v.through[0] + v.through[1]);
  const float da0 = through + (later + rows.y + rows.x) + prefix;
  const float da1 = through + (later + rows.y) + (prefix + dt.x * out.x);
  const float a = -expf(parameter(p.a_log, unit / p.sizes.parts, p.bf16_parameters));
  float2 step = make_float2(a * da0 + (column.x + diagonal.x) + out.x,
                            a * da1 + (column.y + diagonal.y) + out.y);
  float sum_bias = 0;
  if (p.sizes.parts == 1) {  // sigmoid(x) = 1 - e^-softplus(x)
    step.x *= dt.x > p.dt_min && dt.x < p.dt_max ? sigmoid_of_softplus(dt.x) : 0;
    step.y *= dt.y > p.dt_min && dt.y < p.dt_max ? sigmoid_of_softplus(dt.y) : 0;
    sum_bias = lanes_sum<32>(step.x + step.y);
    const std::int64_t token = chunk * kChunk + t;
    auto* to = static_cast<__nv_bfloat16*>(p.ddt_raw) + token * p.ddt_stride + unit;
    if (token < p.sizes.tokens) to[0] = __float2bfloat16(step.x);
    if (token + 1 < p.sizes.tokens) to[p.ddt_stride] = __float2bfloat16(step.y);
  } else {
    const std::int64_t tokens = static_cast<std::int64_t>(p.sizes.chunks) * kChunk;
    *reinterpret_cast<float2*>(p.dstep + unit * tokens + chunk * kChunk + t) = step;
  }
  const float sum_a = lanes_sum<32>(dt.x * da0 + dt.y * da1);
  const float sum_d = lanes_sum<32>(skip.x + skip.y);
  if (lane == 0) {
    reinterpret_cast<float4*>(p.sums)[static_cast<std::int64_t>(chunk) * p.sizes.units + unit] =
        make_float4(sum_a, sum_d, sum_bias, 0);
  }
}

/// Helper 0: the scans over tokens, one unit after the other.
template <int kState, int kColumns>
__device__ void scan_tokens(const GradientParameters& p, const Tile& tile,
                            Ring<Layout<kState, kColumns>>& ring, std::byte* shared) {
  using L = Layout<kState, kColumns>;
  auto* barriers = reinterpret_cast<typename L::Barriers*>(shared + L::kBarrierOffset);
  const auto* vectors = reinterpret_cast<const Vectors*>(shared + L::kVectorOffset);
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int u = 0; u < p.sizes.group_units; ++u, ring.next()) {
    mbarrier_wait(&barriers->full[ring.stage], ring.parity);
    const float* factors =
        reinterpret_cast<const float*>(shared + L::kFactorOffset) + ring.stage * L::kFactorFloats;
    const float2 dt = *reinterpret_cast<const float2*>(factors + kStep + 2 * lane);
    const float decay = factors[kIn + kChunk - 1];
    mbarrier_arrive(&barriers->empty[ring.stage]);
    mbarrier_wait(&barriers->vectors_full[ring.stage], ring.parity);
    finish_unit(p, vectors[ring.stage], dt, decay, tile.chunk(),
                tile.group() * p.sizes.group_units + u, lane);
    mbarrier_arrive(&barriers->vectors_empty[ring.stage]);
  }
}

/// Helpers 1 and 2: a half of <G, S> each.
template <int kState, int kColumns>
__device__ void multiply_states(const GradientParameters& p, const Tile& tile, int half,
                                Ring<Layout<kState, kColumns>>& ring, std::byte* shared) {
  using L = Layout<kState, kColumns>;
  auto* barriers = reinterpret_cast<typename L::Barriers*>(shared + L::kBarrierOffset);
  auto* vectors = reinterpret_cast<Vectors*>(shared + L::kVectorOffset);
  const int lane = static_cast<int>(threadIdx.x % 32);
  constexpr int kRows = L::kImageBytes / 16 / 2;  // of 16 bytes, in a half
  for (int u = 0; u < p.sizes.group_units; ++u, ring.next()) {
    mbarrier_wait(&barriers->full[ring.stage], ring.parity);
    const std::byte* tiles = shared + ring.stage * L::kStageBytes;
    const auto* s = reinterpret_cast<const uint4*>(tiles + L::kImageOffset) + half * kRows + lane;
    const auto* g = s + L::kImageBytes / 16;
    const auto scales = [&](int unit) {
      const float* at = reinterpret_cast<const float*>(shared + L::kFactorOffset) +
                        ring.stage * L::kFactorFloats + kScale + unit * kScaleFloats;
      return at[0] * at[1];
    };
    float sums[2] = {0, 0}, sum;
    if constexpr (L::kUnits == 1) {
#pragma unroll 1
      for (int i = 0; i < kRows; i += 64) {
        sums[0] += dot8(s[i], g[i]);
        sums[1] += dot8(s[i + 32], g[i + 32]);
      }
      const float scale = scales(0);
      mbarrier_arrive(&barriers->empty[ring.stage]);
      sum = scale * lanes_sum<32>(sums[0] + sums[1]);
    } else {
      constexpr int kStripRows = kStrip * 8;
      static_assert(kRows % 64 == 0 && kStripRows % 64 == 0);
      const int unit = tile.group() * p.sizes.group_units + u;
#pragma unroll 1
      for (int i = 0; i < kRows; i += 64) {
        const int row = L::kStateTiles == 2 ? i : half * kRows + i;  // of a tile
        const float scale = scales(L::unit_of(unit, row / kStripRows));
        sums[0] += scale * dot8(s[i], g[i]);
        sums[1] += scale * dot8(s[i + 32], g[i + 32]);
      }
      mbarrier_arrive(&barriers->empty[ring.stage]);
      sum = lanes_sum<32>(sums[0] + sums[1]);
    }
    mbarrier_wait(&barriers->vectors_empty[ring.stage], ring.parity ^ 1U);
    if (lane == 0) {
      vectors[ring.stage].through[half] = sum;
      mbarrier_arrive(&barriers->vectors_full[ring.stage]);
    }
  }
}

}  // namespace stowage::kernels::ssd::gradient_frame
