// Backward of the scan: persistent blocks, a tile is one chunk of 64 tokens and one group, all its
// units in turn. Here heads of 80 columns are units: 64 columns, and 16 in tiles of their own; two
// stages, as three do not fit. Their images have the scales of the two units that they lie in.
//
// With S the state before the chunk, G the adjoint after it (both from ssd_states.cu, fp16 tiles),
// a the chunk's running log decay, L_ij = 2^(a_i - a_j) for j <= i of one document, e_i = 2^(a_i)
// and o_j = 2^(a_63 - a_j) zero where a document ends in between, CB = C B^T, dM = dY X^T:
//   dX_j = dt_j (o_j B_j G + sum_i L_ij CB_ij dY_i) + D dY_j
//   dC_i = sum over units of e_i S dY_i + sum_j dCB_ij B_j          dCB = sum of dM . L dt_j
//   dB_j = sum over units of dt_j o_j G X_j + sum_i dCB_ij C_i
//   E_ij = dM_ij CB_ij L_ij,   K_j = o_j X_j (B_j G),   R_i = e_i C_i (S dY_i)
//   da_t = e_63 <G, S> + sum_{i >= t} R_i + sum_{j < t} dt_j K_j + sum_{i >= t > j} dt_j E_ij
//   ddt_t = A da_t + K_t + sum_i E_it,   dA = sum dt_t da_t,   dD = sum dY_t X_t
// The last sum over pairs is a suffix sum of row sums less column sums. Its terms i = j would
// cancel, and with fast decay they are all there is beside rounding: they are left out of both
// sums, and of M, and join ddt and dX by themselves. Nothing else is subtracted.
//
// Warpgroup 0: a producer warp (bulk loads, a ring of kStages units) and three warps for <G, S> and
// the scans over tokens. Warpgroup 1: what lies inside the chunk, transposed (rows j), so that M^T
// and dCB^T are A operands in registers, and dX. Warpgroup 2: dB and dC, whose sums over the
// group's units stay in its registers to the end: no partial sums in memory, no atomics, one order.
// fp32 sums, bf16 operands but for S and G, which are rounded at every 64 tokens, what the gradient
// of A feels most: they are fp16, each scaled by a power of two, and what they meet, X, dY and B,
// becomes fp16 on the way, its rows scaled to one magnitude: 11 digits instead of 8.
// Cost per token and unit: 2 (128 + 5 N) 64 flops; bytes: 3 * 128 for X, dY, dX and 4 N for the two
// states. Deterministic.
// Limits: memory (the states are half of the bytes) and, as long, warpgroup 2's chain.

#include <algorithm>

#include "kernels/hopper/setmaxnreg.cuh"
#include "kernels/ssd/ssd_gradient.cuh"
#include "kernels/ssd/ssd_unit_rows.cuh"

namespace stowage::kernels::ssd {
namespace {

using namespace gradient_frame;

/// Issues d = (accumulate d) + A B with both operands row by row along K.
template <int kK>
__device__ __forceinline__ void issue_rows(float (&d)[32], const std::byte* a, const std::byte* b) {
  const std::uint64_t da = k_major<Swizzle::b128>(a);
  const std::uint64_t db = k_major<Swizzle::b128>(b);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < kK / kKStep; ++k) {
    const std::uint32_t offset = (k / 4) * kTileBytes + (k % 4) * kKMajorStep;
    Wgmma<64>::ss<0, 0>(d, advance(da, offset), advance(db, offset), k > 0);
  }
  wgmma_commit_group();
}

/// Issues dM = X dY^T of the unit of a stage.
template <class L>
__device__ __forceinline__ void issue_pairs(float (&d)[32], const std::byte* stage) {
  if constexpr (L::kRest == 0) {
    issue_rows<kPart>(d, stage, stage + kTileBytes);
  } else {
    const std::uint64_t da = k_major<Swizzle::b128>(stage);
    const std::uint64_t db = k_major<Swizzle::b128>(stage + kTileBytes);
    const std::byte* rest = stage + L::kRestOffset;
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kPart / kKStep; ++k) {
      Wgmma<64>::ss<0, 0>(d, advance(da, k * kKMajorStep), advance(db, k * kKMajorStep), k > 0);
    }
    Wgmma<64>::ss<0, 0>(d, k_major<Swizzle::b32>(rest), k_major<Swizzle::b32>(rest + L::kRestBytes),
                        1);
    wgmma_commit_group();
  }
}

/// Issues A B for fp16, A of 64 rows and B of 2 kFloats, whose tiles of 64 along K are `step` bytes
/// apart.
template <int kK, int kStep = kTileBytes, int kFloats>
__device__ __forceinline__ void issue_rows_f16(float (&d)[kFloats], const std::byte* a,
                                               const std::byte* b) {
  const std::uint64_t da = k_major<Swizzle::b128>(a);
  const std::uint64_t db = k_major<Swizzle::b128>(b);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < kK / kKStep; ++k) {
    const std::uint32_t inside = (k % 4) * kKMajorStep;
    Wgmma<2 * kFloats>::template ss_f16<0, 0>(d, advance(da, (k / 4) * kTileBytes + inside),
                                              advance(db, (k / 4) * kStep + inside), k > 0);
  }
  wgmma_commit_group();
}

/// Leaves B in fp16 with rows scaled to one magnitude, and what undoes that: the partner of the
/// images. Two threads a row; a copy has its original's place in the tile.
template <int kState, int kColumns>
__device__ __forceinline__ void convert_b(std::byte* shared, const Place& at) {
  using L = Layout<kState, kColumns>;
  constexpr int kPieces = kState / 16;  // of 16 bytes
  const int row = at.thread / 2, half = at.thread % 2;
  const int first = kState == 128 ? half * kTileBytes + row * 128 : row * 128 + half * 64;
  const auto piece = [&](int k) { return first + (k + row) % kPieces * 16; };  // spreads the banks
  const std::byte* from = shared + L::kBOffset;
  std::uint32_t largest = 0;
#pragma unroll
  for (int k = 0; k < kPieces; ++k) {
    const uint4 v = *reinterpret_cast<const uint4*>(from + piece(k));
    largest = __vmaxu2(largest, __vmaxu2(__vmaxu2(v.x & 0x7FFF7FFFU, v.y & 0x7FFF7FFFU),
                                         __vmaxu2(v.z & 0x7FFF7FFFU, v.w & 0x7FFF7FFFU)));
  }
  largest = max(largest << 16, largest & 0xFFFF0000U);
  largest = max(largest, __shfl_xor_sync(0xFFFFFFFFU, largest, 1));
  const HalfScale scale(largest);
  if (half == 0) reinterpret_cast<float*>(shared + L::kRowScaleOffset)[row] = scale.inverse;
#pragma unroll
  for (int k = 0; k < kPieces; ++k) {
    const uint4 v = *reinterpret_cast<const uint4*>(from + piece(k));
    const auto convert = [&](std::uint32_t pair) {
      return pack_f16(scale.factor * unpack_low(pair), scale.factor * unpack_high(pair));
    };
    *reinterpret_cast<uint4*>(shared + L::kHalfOffset + piece(k)) =
        make_uint4(convert(v.x), convert(v.y), convert(v.z), convert(v.w));
  }
  fence_proxy_async();
}

/// Zeroes the pairs (row j, column i) of different documents or with i < j.
__device__ __forceinline__ void mask(float (&d)[32], int end0, int end1, const Place& at) {
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    const int column = 8 * (i / 4) + at.column + (i & 1);
    const int row = at.row + (i & 2) * 4;
    if (column < row || column > ((i & 2) ? end1 : end0)) d[i] = 0;
  }
}

/// Adds the halves of v[0 .. 2 kHalf) across lanes 2 kHalf apart; each keeps one half.
template <int kHalf>
__device__ __forceinline__ void fold_columns(float (&v)[16], int lane) {
  const bool upper = (lane & (2 * kHalf)) != 0;
#pragma unroll
  for (int k = 0; k < kHalf; ++k) {
    const float sent = upper ? v[k] : v[k + kHalf];
    const float kept = upper ? v[k + kHalf] : v[k];
    v[k] = kept + __shfl_xor_sync(0xFFFFFFFFU, sent, 2 * kHalf);
  }
}

/// Sums v[2 j + b], the columns 8 j + column + b, over the eight rows that the warp's lanes hold;
/// each lane ends with the two columns 8 block + column in v[0] and v[1]; block is returned.
__device__ __forceinline__ int sum_columns(float (&v)[16], int lane) {
  fold_columns<8>(v, lane);
  fold_columns<4>(v, lane);
  fold_columns<2>(v, lane);
  return (lane & 16) / 4 + (lane & 8) / 4 + (lane & 4) / 4;
}

/// The diagonal of a 64 x 64 accumulator: rows `row` and `row` + 8, in the lanes with
/// lane mod 4 = lane / 8.
__device__ __forceinline__ float2 diagonal(const float (&d)[32], const Place& at) {
  const bool odd = (at.lane / 4) % 2 != 0;
  float2 value = make_float2(0, 0);
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    if (at.warp != w) continue;
    value = make_float2(odd ? d[8 * w + 1] : d[8 * w], odd ? d[8 * w + 7] : d[8 * w + 6]);
  }
  return value;
}

/// Zeroes the diagonal; returns what was there, rows `row` and `row` + 8, in all lanes of a row.
__device__ __forceinline__ float2 take_diagonal(float (&d)[32], const Place& at) {
  const float2 value = diagonal(d, at);
  const bool odd = (at.lane / 4) % 2 != 0;
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    if (at.warp != w || at.lane % 4 != at.lane / 8) continue;
    (odd ? d[8 * w + 1] : d[8 * w]) = 0;
    (odd ? d[8 * w + 7] : d[8 * w + 6]) = 0;
  }
  const int from = at.lane / 4 * 4 + at.lane / 8;
  return make_float2(__shfl_sync(0xFFFFFFFFU, value.x, from),
                     __shfl_sync(0xFFFFFFFFU, value.y, from));
}

/// Warpgroup 1.
template <int kState, int kColumns>
__device__ void inside(const GradientParameters& p, const Tile& tile,
                       Ring<Layout<kState, kColumns>>& ring, std::byte* shared, const Place& at) {
  using L = Layout<kState, kColumns>;
  const int chunk = tile.chunk(), group = tile.group();
  auto* barriers = reinterpret_cast<typename L::Barriers*>(shared + L::kBarrierOffset);
  auto* vectors = reinterpret_cast<Vectors*>(shared + L::kVectorOffset);
  const std::byte* b = shared + L::kBOffset;
  std::byte* staging = shared + L::kStagingOffset + at.warp * kStagingBytes;
  const int end0 = p.spans[chunk * kChunk + at.row].end;
  const int end1 = p.spans[chunk * kChunk + at.row + 8].end;

  float cb[32], dcb[32];
  mbarrier_wait(&barriers->group_full, tile.parity);
  issue_rows<kState>(cb, b, shared + L::kCOffset);
#pragma unroll
  for (float& value : dcb) value = 0;
  wgmma_wait_group<0>();
  named_barrier_sync(kInsideBarrier, 128);  // all are done with the tile before
  convert_b<kState, kColumns>(shared, at);
  named_barrier_sync(kInsideBarrier, 128);
  mask(cb, end0, end1, at);
  const float2 own = take_diagonal(cb, at);  // C_j B_j, apart: see above

  float dm[32];
  mbarrier_wait(&barriers->full[ring.stage], ring.parity);
  const std::byte* first = shared + ring.stage * L::kStageBytes;
  issue_pairs<L>(dm, first);
  wgmma_wait_group<0>();
  Head head(p.sizes, group);
  for (int u = 0; u < p.sizes.group_units; ++u, ring.next(), head.next(p.sizes)) {
    const int unit = group * p.sizes.group_units + u;
    const float skip = parameter(p.d, L::kRest == 0 ? head.index : unit, p.bf16_parameters);
    const std::byte* stage = shared + ring.stage * L::kStageBytes;
    const std::byte* dy = stage + kTileBytes;
    const std::byte* dy_rest = stage + L::kRestOffset + L::kRestBytes;
    const std::byte* g = stage + L::kImageOffset + L::kImageBytes;
    const float* factors =
        reinterpret_cast<const float*>(shared + L::kFactorOffset) + ring.stage * L::kFactorFloats;
    Vectors& v = vectors[ring.stage];

    float dx[32];
    float rest[8];  // of its columns beyond 64
    std::uint32_t m[16];
    float column0 = 0, column1 = 0;
    float rows[16];
    issue_rows_f16<kState, L::kImageTileBytes>(dx, shared + L::kHalfOffset, g);
    if constexpr (L::kRest != 0) {
      issue_rows_f16<kState, L::kImageTileBytes>(rest, shared + L::kHalfOffset, g + kPart * 128);
    }
    const float dt0 = factors[kStep + at.row], dt1 = factors[kStep + at.row + 8];
    const float log0 = factors[kLog + at.row], log1 = factors[kLog + at.row + 8];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 log = *reinterpret_cast<const float2*>(factors + kLog + 8 * j + at.column);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int i = 4 * j + 2 * h;
        const float from = h ? log1 : log0, dt = h ? dt1 : dt0;
        // |.|: left of the diagonal, where all is masked, the difference is positive
        const float l0 = ex2(-fabsf(log.x - from));
        const float l1 = ex2(-fabsf(log.y - from));
        const float m0 = cb[i] * l0, m1 = cb[i + 1] * l1;
        m[2 * j + h] = pack_bf16(m0, m1);
        const float e0 = dm[i] * m0, e1 = dm[i + 1] * m1;
        (h ? column1 : column0) += e0 + e1;
        rows[2 * j] = h ? rows[2 * j] + dt * e0 : dt * e0;
        rows[2 * j + 1] = h ? rows[2 * j + 1] + dt * e1 : dt * e1;
        dcb[i] += dm[i] * dt * l0;
        dcb[i + 1] += dm[i + 1] * dt * l1;
      }
    }
    const float2 skips = diagonal(dm, at);
    const auto* row_scales = reinterpret_cast<const float*>(shared + L::kRowScaleOffset);
    float o0[L::kUnits], o1[L::kUnits];
#pragma unroll
    for (int k = 0; k < L::kUnits; ++k) {
      const float scale = factors[kScale + k * kScaleFloats + 1];
      o0[k] = factors[kOut + at.row] * (row_scales[at.row] * scale);
      o1[k] = factors[kOut + at.row + 8] * (row_scales[at.row + 8] * scale);
    }
    const auto out = [&](int i) {  // of accumulator i
      const bool second = L::unit_of(unit, i / 8) != 0;
      return second ? ((i & 2) ? o1[L::kUnits - 1] : o0[L::kUnits - 1]) : ((i & 2) ? o1[0] : o0[0]);
    };
    wgmma_wait_group<0>();
    Ring<L> after = ring;  // the next unit's dM runs beside the rest of this one
    if (u + 1 < p.sizes.group_units) after.next();
    const std::byte* next = shared + after.stage * L::kStageBytes;
    mbarrier_wait(&barriers->full[after.stage], after.parity);
    issue_pairs<L>(dm, next);
#pragma unroll
    for (int i = 0; i < 32; ++i) dx[i] *= out(i);
    if constexpr (L::kRest != 0) {
#pragma unroll
      for (int i = 0; i < 8; ++i) rest[i] *= out(32 + i);
    }
    const std::uint64_t ddy = mn_major<Swizzle::b128>(dy, kTileBytes);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      Wgmma<64>::rs<1>(dx, m[4 * k], m[4 * k + 1], m[4 * k + 2], m[4 * k + 3],
                       advance(ddy, k * kMnMajorStep), 1);
    }
    if constexpr (L::kRest != 0) {
      const std::uint64_t drest = mn_major<Swizzle::b32>(dy_rest, L::kRestBytes);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        Wgmma<kStrip>::rs<1>(rest, m[4 * k], m[4 * k + 1], m[4 * k + 2], m[4 * k + 3],
                             advance(drest, k * 32 * kKStep), 1);
      }
    }
    wgmma_commit_group();

    mbarrier_wait(&barriers->vectors_empty[ring.stage], ring.parity ^ 1U);
    const int block = sum_columns(rows, at.lane);
    *reinterpret_cast<float2*>(v.row_part[at.warp] + 8 * block + at.column) =
        make_float2(rows[0], rows[1]);
    column0 = lanes_sum<4>(column0);
    column1 = lanes_sum<4>(column1);
    if (at.column == 0) {
      v.column[at.row] = column0;
      v.column[at.row + 8] = column1;
    }
    if (at.lane % 4 == at.lane / 8) {
      v.skip[at.row] = skips.x;
      v.skip[at.row + 8] = skips.y;
      v.diagonal[at.row] = skips.x * own.x;
      v.diagonal[at.row + 8] = skips.y * own.y;
    }
    mbarrier_arrive(&barriers->vectors_full[ring.stage]);
    std::uint32_t pairs[4][4];
#pragma unroll
    for (int k = 0; k < 4; ++k) load_rows(pairs[k], shared_address(dy), k, at);
    std::uint32_t rest_pairs[4];
    if constexpr (L::kRest != 0) load_rest(rest_pairs, dy_rest, at);
    wgmma_wait_group<0>();
    mbarrier_arrive(&barriers->empty[ring.stage]);
    const auto finish = [&](float& low, float& high, int i, std::uint32_t pair) {
      const float dt = (i & 2) ? dt1 : dt0;
      const float same = skip + dt * ((i & 2) ? own.y : own.x);
      low = dt * low + same * unpack_low(pair);
      high = dt * high + same * unpack_high(pair);
    };
#pragma unroll
    for (int i = 0; i < 32; i += 2) finish(dx[i], dx[i + 1], i, pairs[i / 8][i % 8 / 2]);
    if constexpr (L::kRest == 0) {
      send_rows(staging, dx, &p.dxbc, unit, chunk * kChunk, at);
    } else {
#pragma unroll
      for (int i = 0; i < 8; i += 2) finish(rest[i], rest[i + 1], i, rest_pairs[i / 2]);
      send_head(p, staging, shared + L::kRestStagingOffset + at.warp * L::kRestStagingBytes, dx,
                rest, unit, chunk * kChunk, at);
    }
  }
  mbarrier_arrive(&barriers->group_empty);
  mask(dcb, end0, end1, at);
  store_tiles<8>(shared_address(shared + L::kPairOffset), dcb, at);
  fence_proxy_async();
  named_barrier_arrive(kPairBarrier, 256);
}

/// sum += factor t by rows, and the rows' products of t with the tiles of a (64, N) matrix.
template <int kState>
__device__ __forceinline__ void add_product(float (&sum)[kState / 2], float& dot0, float& dot1,
                                            const float (&t)[kState / 2], const std::byte* tiles,
                                            float factor0, float factor1, const Place& at) {
  dot0 = dot1 = 0;
#pragma unroll
  for (int k = 0; k < kState / 16; ++k) {
    std::uint32_t pairs[4];
    load_rows(pairs, shared_address(tiles) + (k / 4) * kTileBytes, k % 4, at);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const int i = 8 * k + 2 * n;
      float& dot = (n & 1) ? dot1 : dot0;
      dot += unpack_low(pairs[n]) * t[i];
      dot += unpack_high(pairs[n]) * t[i + 1];
      sum[i] += ((n & 1) ? factor1 : factor0) * t[i];
      sum[i + 1] += ((n & 1) ? factor1 : factor0) * t[i + 1];
    }
  }
}

/// Sums each row's value over its four lanes and stores it by row.
__device__ __forceinline__ void put_rows(float* to, float value0, float value1, const Place& at) {
  value0 = lanes_sum<4>(value0);
  value1 = lanes_sum<4>(value1);
  if (at.column != 0) return;
  to[at.row] = value0;
  to[at.row + 8] = value1;
}

/// Sends a (64, N) result to columns of dxbc.
template <int kState>
__device__ __forceinline__ void send_columns(const GradientParameters& p,
                                             const float (&d)[kState / 2], int column, int chunk,
                                             std::byte* staging, const Place& at) {
#pragma unroll
  for (int t = 0; t < kState / 64; ++t) {
    float part[32];
#pragma unroll
    for (int i = 0; i < 32; ++i) part[i] = d[32 * t + i];
    send_rows(staging, part, &p.dxbc, column / kPart + t, chunk * kChunk, at);
  }
}

/// Warpgroup 2.
template <int kState, int kColumns>
__device__ void across(const GradientParameters& p, const Tile& tile,
                       Ring<Layout<kState, kColumns>>& ring, std::byte* shared, const Place& at) {
  using L = Layout<kState, kColumns>;
  auto* barriers = reinterpret_cast<typename L::Barriers*>(shared + L::kBarrierOffset);
  auto* vectors = reinterpret_cast<Vectors*>(shared + L::kVectorOffset);
  const std::byte* b = shared + L::kBOffset;
  const std::byte* c = shared + L::kCOffset;
  const std::byte* pair = shared + L::kPairOffset;
  std::byte* staging = shared + L::kStagingOffset + (4 + at.warp) * kStagingBytes;

  float db[kState / 2], dc[kState / 2];
#pragma unroll
  for (int i = 0; i < kState / 2; ++i) db[i] = dc[i] = 0;
  mbarrier_wait(&barriers->group_full, tile.parity);
  for (int u = 0; u < p.sizes.group_units; ++u, ring.next()) {
    const std::byte* stage = shared + ring.stage * L::kStageBytes;
    const UnitRows<L> x{stage, stage + L::kRestOffset};
    const UnitRows<L> dy{stage + kTileBytes, x.rest + L::kRestBytes};
    const std::byte* s = stage + L::kImageOffset;
    const std::byte* g = s + L::kImageBytes;
    const int unit = tile.group() * p.sizes.group_units + u;
    const float* factors =
        reinterpret_cast<const float*>(shared + L::kFactorOffset) + ring.stage * L::kFactorFloats;
    mbarrier_wait(&barriers->full[ring.stage], ring.parity);
    float t[kState / 2];
    const RowScales dy_scales(dy, at);
    multiply_state<kState, L>(t, dy, dy_scales, factors + kScale, unit, s, at);
    const float s_scale = image_scale<L>(factors + kScale);
    const float in0 = factors[kIn + at.row] * (dy_scales.inverse(0) * s_scale);
    const float in1 = factors[kIn + at.row + 8] * (dy_scales.inverse(1) * s_scale);
    float sum0, sum1;
    add_product<kState>(dc, sum0, sum1, t, c, in0, in1, at);
    mbarrier_wait(&barriers->vectors_empty[ring.stage], ring.parity ^ 1U);
    put_rows(vectors[ring.stage].in, in0 * sum0, in1 * sum1, at);
    const RowScales x_scales(x, at);
    multiply_state<kState, L>(t, x, x_scales, factors + kScale + 1, unit, g, at);
    const float g_scale = image_scale<L>(factors + kScale + 1);
    const float out0 = factors[kOut + at.row] * (x_scales.inverse(0) * g_scale);
    const float out1 = factors[kOut + at.row + 8] * (x_scales.inverse(1) * g_scale);
    const float weight0 = factors[kStep + at.row] * out0;
    const float weight1 = factors[kStep + at.row + 8] * out1;
    mbarrier_arrive(&barriers->empty[ring.stage]);
    add_product<kState>(db, sum0, sum1, t, b, weight0, weight1, at);
    put_rows(vectors[ring.stage].out, out0 * sum0, out1 * sum1, at);
    mbarrier_arrive(&barriers->vectors_full[ring.stage]);
  }

  named_barrier_sync(kPairBarrier, 256);
  const std::uint64_t rows_j = k_major<Swizzle::b128>(pair);
  const std::uint64_t rows_i = mn_major<Swizzle::b128>(pair, kTileBytes);
  const std::uint64_t dbb = mn_major<Swizzle::b128>(b, kTileBytes);
  const std::uint64_t dcc = mn_major<Swizzle::b128>(c, kTileBytes);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    Wgmma<kState>::template ss<0, 1>(db, advance(rows_j, k * kKMajorStep),
                                     advance(dcc, k * kMnMajorStep), 1);
  }
  wgmma_commit_group();
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    Wgmma<kState>::template ss<1, 1>(dc, advance(rows_i, k * kMnMajorStep),
                                     advance(dbb, k * kMnMajorStep), 1);
  }
  wgmma_commit_group();
  wgmma_wait_group<0>();
  mbarrier_arrive(&barriers->group_empty);
  const int chunk = tile.chunk(), group = tile.group();
  send_columns<kState>(p, db, p.sizes.b_column + group * kState, chunk, staging, at);
  send_columns<kState>(p, dc, p.sizes.c_column + group * kState, chunk, staging, at);
}

template <int kState, int kColumns>
__global__ void __launch_bounds__(kThreads, 1)
    gradient(const __grid_constant__ GradientParameters p) {
  using L = Layout<kState, kColumns>;
  extern __shared__ __align__(1024) std::byte shared[];
  auto* barriers = reinterpret_cast<typename L::Barriers*>(shared + L::kBarrierOffset);
  if (threadIdx.x == 0) {
    for (int i = 0; i < L::kStages; ++i) {
      mbarrier_init(&barriers->full[i], 1);
      mbarrier_init(&barriers->empty[i], 32 * (8 + kHelpers));
      mbarrier_init(&barriers->vectors_full[i], 32 * 8 + 2);
      mbarrier_init(&barriers->vectors_empty[i], 32);
    }
    mbarrier_init(&barriers->group_full, 1);
    mbarrier_init(&barriers->group_empty, 32 * 8);
    mbarrier_init_fence();
  }
  griddepcontrol_launch_dependents();
  griddepcontrol_wait();
  __syncthreads();
  Tile tile(p.sizes);
  Ring<L> ring;
  if (threadIdx.x < 128) {
    setmaxnreg_dec<40>();
    if (threadIdx.x == 0) {
      for (; tile.valid(); tile.next()) load_tile<kState, kColumns>(p, tile, ring, shared);
    } else if (threadIdx.x >= 64) {
      const int half = static_cast<int>(threadIdx.x / 32) - 2;
      for (; tile.valid(); tile.next())
        multiply_states<kState, kColumns>(p, tile, half, ring, shared);
    } else if (threadIdx.x >= 32) {
      for (; tile.valid(); tile.next()) scan_tokens<kState, kColumns>(p, tile, ring, shared);
    }
  } else if (threadIdx.x < 256) {
    setmaxnreg_inc<232>();
    const Place at;
    for (; tile.valid(); tile.next()) inside<kState, kColumns>(p, tile, ring, shared, at);
    finish_sends(at);
  } else {
    setmaxnreg_inc<232>();
    const Place at;
    for (; tile.valid(); tile.next()) across<kState, kColumns>(p, tile, ring, shared, at);
    finish_sends(at);
  }
}

template <int kState, int kColumns>
cudaError_t launch(const GradientParameters& p, cudaStream_t stream) {
  using L = Layout<kState, kColumns>;
  const auto kernel = gradient<kState, kColumns>;
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, L::kBytes);
  if (status != cudaSuccess) return status;
  const int grid = std::min(p.sizes.chunks * p.sizes.groups, kMultiprocessors);
  return launch_dependent(kernel, dim3(static_cast<unsigned>(grid)), kThreads, L::kBytes, stream,
                          p);
}

}  // namespace

cudaError_t launch_gradient(const GradientParameters& parameters, cudaStream_t stream) {
  return with_kernel(parameters, [&]<int kState, int kColumns>() {
    return launch<kState, kColumns>(parameters, stream);
  });
}

}  // namespace stowage::kernels::ssd
