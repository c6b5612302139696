// The gradients of q, k, b and a of the gated delta rule on warp-group products: gradients() of
// gated_delta_gradients.hpp, which has the formulas, for bf16 storage and heads of 128.
//
// A block has a chunk and a head of q and k, and goes through the heads of v that share it. Rows of
// all accumulators are tokens. Warpgroup 0 has what q reads, warpgroup 1 what k corrects and how it
// is read. D and E are kept times the norms of their rows and columns, so their products take q and
// k as they lie in memory, and results are gradients times the row's own norm.
// Limits: memory; copies of a head's operands overlap with the last products of the one before.

#include "kernels/gated_delta/gated_delta_chunk.hpp"
#include "kernels/gated_delta/gated_delta_launches.cuh"
#include "kernels/gated_delta/gated_delta_tiles.cuh"
#include "kernels/pack.cuh"

namespace stowage::kernels::gated_delta {
namespace {

constexpr int kThreads = 2 * kGroup;

constexpr int kQ = 0, kK = kQ + kKeyBytes, kDy = kK + kKeyBytes, kU = kDy + kKeyBytes,
              kW = kU + kKeyBytes, kS = kW + kKeyBytes, kDs = kS + 2 * kKeyBytes,
              kD = kDs + 2 * kKeyBytes, kE = kD + kTileBytes, kField = kE + kTileBytes;

/// Values of a token, and sums.
struct Vectors {
  float fields[2][kFields * kC];  // of heads in turn
  float sums[2][kC];              // of logarithms, by warpgroup
  int documents[kC];
  float own[kC], own_beta[kC], reads[kC], corrects[kC], read[kC], is_read[kC];
  float state[4];
};
constexpr int kSharedBytes = kField + static_cast<int>(sizeof(Vectors));

extern __shared__ __align__(1024) std::byte shared_bytes[];

/// Issues d (64 x kN) = A B over 128: A's rows along M in tiles of 64 columns, B's along N, or with
/// kColumns along K in halves of 64 rows.
template <int kN, bool kColumns>
__device__ __forceinline__ void issue_product(float (&d)[kN / 2], std::uint32_t a_tile,
                                              std::uint32_t b_tile) {
  constexpr std::uint32_t kStride = 8 * row_bytes(Swizzle::b128);
  const std::uint64_t a = wgmma_descriptor(a_tile, Swizzle::b128, 16, kStride);
  const std::uint64_t b =
      wgmma_descriptor(b_tile, Swizzle::b128, kColumns ? kTileBytes : 16, kStride);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < kWide / 16; ++k) {
    const std::uint32_t rows = k / 4 * kTileBytes + k % 4 * 32;
    Wgmma<kN>::template ss<0, kColumns>(
        d, advance(a, rows), advance(b, kColumns ? k / 4 * kKeyBytes + k % 4 * 16 * 128 : rows),
        k > 0);
  }
  wgmma_commit_group();
}

/// Issues d += A^T B: A (64, 64) one tile, B (64, 128) of rows along K.
__device__ __forceinline__ void issue_transposed(float (&d)[kWide / 2], std::uint32_t a_tile,
                                                 std::uint32_t b_tile) {
  constexpr std::uint32_t kStride = 8 * row_bytes(Swizzle::b128);
  const std::uint64_t a = wgmma_descriptor(a_tile, Swizzle::b128, kTileBytes, kStride);
  const std::uint64_t b = wgmma_descriptor(b_tile, Swizzle::b128, kTileBytes, kStride);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < kC / 16; ++k)
    Wgmma<kWide>::ss<1, 1>(d, advance(a, k * 16 * 128), advance(b, k * 16 * 128), 1);
  wgmma_commit_group();
}

__device__ __forceinline__ void scale_rows(float (&d)[kWide / 2], float row0, float row1) {
#pragma unroll
  for (int i = 0; i < kWide / 2; ++i) d[i] *= (i & 2) ? row1 : row0;
}

/// `each(i, x, y)` of an accumulator's positions i, i + 1 with a pair of q or k.
template <class Each>
__device__ __forceinline__ void with_keys(std::uint32_t tiles, const Place& at, const Each& each) {
#pragma unroll
  for (int k = 0; k < kWide / 16; ++k) {
    std::uint32_t pairs[4];
    ldmatrix_x4(pairs, tile_address(tiles + static_cast<std::uint32_t>(k / 4 * kTileBytes),
                                    16 * at.warp + at.lane % 16, 2 * k % 8 + at.lane / 16));
#pragma unroll
    for (int i = 0; i < 4; ++i) each(8 * k + 2 * i, unpack_low(pairs[i]), unpack_high(pairs[i]));
  }
}

/// Sums over the columns of an accumulator times q or k, of the thread's two rows.
__device__ __forceinline__ float2 row_products(const float (&d)[kWide / 2], std::uint32_t tiles,
                                               const Place& at) {
  float sums[2] = {};
  with_keys(tiles, at, [&](int i, float x, float y) {
    float& sum = sums[(i & 2) / 2];
    sum = fmaf(d[i], x, sum);
    sum = fmaf(d[i + 1], y, sum);
    asm volatile("" : "+f"(sum)::"memory");
  });
  return make_float2(lanes_sum<4>(sums[0]), lanes_sum<4>(sums[1]));
}

__device__ __forceinline__ void set_rows(float* to, float2 values, const Place& at) {
  if (at.lane % 4 != 0) return;
  to[at.row] = values.x;
  to[at.row + 8] = values.y;
}

/// total += d + factors of rows times q or k.
__device__ __forceinline__ void add_rows(float (&total)[kWide / 2], const float (&d)[kWide / 2],
                                         float2 factors, std::uint32_t tiles, const Place& at) {
  with_keys(tiles, at, [&](int i, float x, float y) {
    const float factor = (i & 2) ? factors.y : factors.x;
    total[i] += fmaf(factor, x, d[i]);
    total[i + 1] += fmaf(factor, y, d[i + 1]);
    // Holds back the next pairs, for which there are no registers.
    asm volatile("" : "+f"(total[i]), "+f"(total[i + 1])::"memory");
  });
}

/// The diagonal of an accumulator of pairs of tokens.
__device__ __forceinline__ void set_diagonal(float* to, const float (&d)[kC / 2], const Place& at) {
#pragma unroll
  for (int e = 0; e < kC / 2; ++e) {
    const int i = at.row + (e & 2) * 4, j = e / 4 * 8 + at.column + (e & 1);
    if (i == j) to[i] = d[e];
  }
}

/// Leaves an accumulator of pairs of tokens, an A operand, in a tile.
__device__ __forceinline__ void store_pairs(std::uint32_t tile, const std::uint32_t (&a)[kC / 4],
                                            const Place& at) {
#pragma unroll
  for (int k = 0; k < 4; ++k)
    stmatrix_x4(tile_address(tile, 16 * at.warp + at.lane % 16, 2 * k + at.lane / 16), a[4 * k],
                a[4 * k + 1], a[4 * k + 2], a[4 * k + 3]);
  fence_proxy_async();
}

/// The gradient of q or k from `total`, its own norm times that of the normed one.
__device__ __forceinline__ void store_gradient(Bf16* to, std::int64_t stride, int rows,
                                               float (&total)[kWide / 2], std::uint32_t keys,
                                               const float* norms, float scale, std::byte* room,
                                               const Place& at) {
  const float2 along = row_products(total, keys, at);
  const float n0 = norms[at.row], n1 = norms[at.row + 8];
  const float2 factors = {-scale * n0 * n0 * along.x, -scale * n1 * n1 * along.y};
  const float none[kWide / 2] = {};
  add_rows(total, none, factors, keys, at);
  const std::uint32_t base = shared_address(room);
#pragma unroll
  for (int k = 0; k < kWide / 16; ++k)
    stmatrix_x4(tile_address(base + static_cast<std::uint32_t>(k / 4 * kTileBytes),
                             16 * at.warp + at.lane % 16, 2 * k % 8 + at.lane / 16),
                pack_bf16(total[8 * k], total[8 * k + 1]),
                pack_bf16(total[8 * k + 2], total[8 * k + 3]),
                pack_bf16(total[8 * k + 4], total[8 * k + 5]),
                pack_bf16(total[8 * k + 6], total[8 * k + 7]));
  __syncwarp();
#pragma unroll
  for (int i = at.lane; i < 16 * kWide / 8; i += 32) {
    const int row = 16 * at.warp + i / 16, chunk = i % 16;
    if (row < rows)
      *reinterpret_cast<uint4*>(to + row * stride + 8 * chunk) = *reinterpret_cast<const uint4*>(
          room +
          (tile_address(base + static_cast<std::uint32_t>(chunk / 8 * kTileBytes), row, chunk % 8) -
           base));
  }
}

/// Starts the copies of what the products of a head of v take.
__device__ __forceinline__ void copy_head(const Chunked& c, int chunk, int head, float* fields,
                                          int thread) {
  const Arrays<Bf16, float>& p = c.arrays;
  const std::uint32_t to = shared_address(shared_bytes);
  const std::int64_t stride = static_cast<std::int64_t>(p.value_heads) * kWide;
  const Bf16* dy = p.dy + static_cast<std::int64_t>(chunk) * kC * stride +
                   static_cast<std::int64_t>(head) * kWide;
  copy_fields<kThreads>(fields, p.field(chunk, head, kLog), thread);
  copy_tiles<2, kThreads>(to + kDy, dy, stride, p.count(chunk), thread);
  copy_tiles<2, kThreads>(to + kU, c.u + p.rows(chunk, head), kWide, kC, thread);
  copy_tiles<2, kThreads>(to + kW, c.w + p.rows(chunk, head), kWide, kC, thread);
  async_copy_commit();
  const std::int64_t state = p.state(chunk, head);
  for (int half = 0; half < 2; ++half) {
    copy_tiles<2, kThreads>(to + kS + half * kKeyBytes, c.states + state + half * kC * kWide, kWide,
                            kC, thread);
    copy_tiles<2, kThreads>(to + kDs + half * kKeyBytes, c.dstates + state + half * kC * kWide,
                            kWide, kC, thread);
  }
  async_copy_commit();
}

/// The gradients of b and a of a chunk and head, by one warp, two tokens a lane.
__device__ __forceinline__ void store_gates(const Arrays<Bf16, float>& p, int chunk, int head,
                                            const Vectors& v, const float* fields, int lane) {
  float ends[2], all = 0;  // of the decays that end at a token, less those that begin behind it
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const int i = 2 * lane + e;
    ends[e] = v.reads[i] + v.corrects[i] - v.is_read[i];
    all += v.read[i];
  }
  const float through =
      fields[kEnter * kC + kC - 1] * (v.state[0] + v.state[1] + v.state[2] + v.state[3]);
  all = lanes_sum<32>(all) + through;
  float behind = ends[0] + ends[1];
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const float other = __shfl_down_sync(0xFFFFFFFFU, behind, static_cast<unsigned>(step));
    if (lane + step < 32) behind += other;
  }
  const float rate = expf(device::to_float(p.a_log[head]));
  const float bias = device::to_float(p.dt_bias[head]);
  float dlog = 0, dbias = 0;
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const int i = 2 * lane + e;
    const float total = all + behind - (e == 1 ? ends[0] : 0);
    dlog += total * fields[kLog * kC + i];
    if (i >= p.count(chunk)) continue;
    const std::int64_t token = static_cast<std::int64_t>(chunk) * kC + i;
    const float a = device::to_float(p.ba[token * p.ba_stride + p.value_heads + head]);
    const float da = -total * rate * sigmoid_of(a + bias);
    dbias += da;
    Bf16* const to = p.dba + token * p.dba_stride;
    to[head] = device::round_to<Bf16>(v.own_beta[i] * (1 - fields[kBeta * kC + i]));
    to[p.value_heads + head] = device::round_to<Bf16>(da);
  }
  dlog = lanes_sum<32>(dlog);
  dbias = lanes_sum<32>(dbias);
  if (lane != 0) return;
  p.partials[2 * p.at(chunk, head)] = dlog;
  p.partials[2 * p.at(chunk, head) + 1] = dbias;
}

/// The sum of S dS' over all elements, a part for each warp.
__device__ __forceinline__ void multiply_states(float* state, const Place& at) {
  float sum = 0;
#pragma unroll 4
  for (int i = 32 * at.warp + at.lane; i < 2 * kKeyBytes / 16; i += kGroup) {
    float s[8], ds[8];
    device::unpack<Bf16>(*reinterpret_cast<const uint4*>(shared_bytes + kS + 16 * i), s);
    device::unpack<Bf16>(*reinterpret_cast<const uint4*>(shared_bytes + kDs + 16 * i), ds);
#pragma unroll
    for (int e = 0; e < 8; ++e) sum = fmaf(s[e], ds[e], sum);
  }
  sum = lanes_sum<32>(sum);
  if (at.lane == 0) state[at.warp] = sum;
}

__global__ void __launch_bounds__(kThreads, 1) gradient_kernel(const Chunked c) {
  const Arrays<Bf16, float>& p = c.arrays;
  const int chunk = static_cast<int>(blockIdx.x), key_head = static_cast<int>(blockIdx.y);
  const int warp = uniform_warp_index(), heads = p.value_heads / p.key_heads;
  const bool reads = warp < 4;
  const Place place;
  const std::uint32_t tiles = shared_address(shared_bytes);
  Vectors& v = *reinterpret_cast<Vectors*>(shared_bytes + kField);
  float* const sums = v.sums[reads ? 0 : 1];
  const std::int64_t token = static_cast<std::int64_t>(chunk) * kC;
  {
    const int thread = static_cast<int>(threadIdx.x);
    const Bf16* q = p.qkv + token * p.qkv_stride + static_cast<std::int64_t>(key_head) * kWide;
    copy_tiles<2, kThreads>(tiles + kQ, q, p.qkv_stride, p.count(chunk), thread);
    copy_tiles<2, kThreads>(tiles + kK, q + p.keys(), p.qkv_stride, p.count(chunk), thread);
    if (thread < kC) v.documents[thread] = p.document(chunk, thread);
    copy_head(c, chunk, key_head * heads, v.fields[0], thread);
  }
  float total[kWide / 2];
#pragma unroll
  for (float& value : total) value = 0;
#pragma unroll 1
  for (int member = 0; member < heads; ++member) {
    const Place at = place.again();
    const int head = key_head * heads + member;
    const float* const fields = v.fields[member % 2];
    const auto row_factors = [&](Field one, Field other) {
      const float *a = fields + one * kC + at.row, *b = fields + other * kC + at.row;
      return make_float2(a[0] * b[0], a[8] * b[8]);
    };
    async_copy_wait<1>();
    fence_proxy_async();
    __syncthreads();
    if (at.warp == 0) {
      const float log[2] = {fields[kLog * kC + 2 * at.lane], fields[kLog * kC + 2 * at.lane + 1]};
      float both[2];
      sum_logs(log, both, at.lane);
      sums[2 * at.lane] = both[0];
      sums[2 * at.lane + 1] = both[1];
    }
    const float* const q_norm = fields + kQNorm * kC;
    const float* const k_norm = fields + kKNorm * kC;
    const float* const beta = fields + kBeta * kC;
    float d[kC / 2], x[kWide / 2];
    std::uint32_t a[kC / 4];
    issue_product<kC, false>(d, tiles + (reads ? kDy : kW), tiles + kU);
    async_copy_wait<0>();
    fence_proxy_async();
    wgmma_wait_group<0>();
    pin_registers(d);
    __syncthreads();
    set_diagonal(reads ? v.own : v.own_beta, d, at);
    const float2 rows =
        reads ? make_float2(q_norm[at.row], q_norm[at.row + 8])
              : make_float2(-beta[at.row] * k_norm[at.row], -beta[at.row + 8] * k_norm[at.row + 8]);
    decay_pairs<true>(d, rows, k_norm, sums, v.documents, at);
    to_operand(a, d);
    issue_product<kWide, true>(x, tiles + (reads ? kDy : kW), tiles + kS);
    store_pairs(tiles + (reads ? kD : kE), a, at);
    if (reads) multiply_states(v.state, at);
    wgmma_wait_group<0>();
    pin_registers(x);
    const float2 enter = row_factors(kEnter, reads ? kQNorm : kKNorm);
    if (reads)
      scale_rows(x, enter.x, enter.y);
    else
      scale_rows(x, -beta[at.row] * enter.x, -beta[at.row + 8] * enter.y);
    issue_columns<kWide, 4>(x, a, tiles + kK, true);
    wgmma_wait_group<0>();
    pin_registers(x);
    keep_operand(a);
    set_rows(reads ? v.reads : v.corrects, row_products(x, tiles + (reads ? kQ : kK), at), at);
    // D and E are there, of both warpgroups.
    const float2 norms = row_factors(kQNorm, kKNorm);
    if (reads) {
      __syncwarp();
      const float2 own = {norms.x * v.own[at.row], norms.y * v.own[at.row + 8]};
      add_rows(total, x, own, tiles + kK, at);
    } else {
      add_rows(total, x, make_float2(0, 0), tiles + kK, at);
      issue_product<kWide, true>(x, tiles + kU, tiles + kDs);
      wgmma_wait_group<0>();
      pin_registers(x);
    }
    __syncthreads();
    if (member + 1 < heads)
      copy_head(c, chunk, head + 1, v.fields[(member + 1) % 2], 32 * warp + fresh_lane());
    if (!reads) {
      const Place late = place.again();
      const float2 leave = row_factors(kLeave, kKNorm);
      scale_rows(x, leave.x, leave.y);
      set_rows(v.read, row_products(x, tiles + kK, late), late);
      issue_transposed(x, tiles + kD, tiles + kQ);
      issue_transposed(x, tiles + kE, tiles + kK);
      wgmma_wait_group<0>();
      pin_registers(x);
      set_rows(v.is_read, row_products(x, tiles + kK, late), late);
      const float2 own = {norms.x * v.own[late.row], norms.y * v.own[late.row + 8]};
      add_rows(total, x, own, tiles + kQ, late);
    }
    __syncthreads();
    if (warp == 0) store_gates(p, chunk, head, v, fields, at.lane);
  }
  const Place at = place.again();
  Bf16* const to = p.dqkv + token * p.dqkv_stride + static_cast<std::int64_t>(key_head) * kWide;
  const float* const fields = v.fields[(heads - 1) % 2];
  store_gradient(to + (reads ? 0 : p.keys()), p.dqkv_stride, p.count(chunk), total,
                 tiles + (reads ? kQ : kK), fields + (reads ? kQNorm : kKNorm) * kC,
                 reads ? kWide : 1, shared_bytes + (reads ? kDy : kU), at);
}

}  // namespace

int launch_gradients(const Chunked& c, void* stream) {
  return launch_blocks(gradient_kernel, c.arrays.chunks(), c.arrays.key_heads, kThreads,
                       kSharedBytes, stream, c);
}

}  // namespace stowage::kernels::gated_delta
