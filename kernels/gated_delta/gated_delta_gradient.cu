// The gradients of q, k, b and a of the gated delta rule on warp-group products: gradients() of
// gated_delta_gradients.hpp, which has the formulas, for bf16 storage and heads of 128.
//
// A block takes chunks and heads of q and k, and in turn the heads of v that share each: items.
// Rows of all accumulators are tokens. Warpgroup 0 has what q reads and what S writes, warpgroup 1
// what k corrects and the sum of what it writes. D and E are kept times the norms of their rows and
// columns, so their products take q and k as they lie in memory, and results are gradients times
// the row's own norm. What an item needs is loaded as soon as the one before has read its place.
// Limits: memory, and the chain of an item's products.

#include <algorithm>

#include "kernels/gated_delta/gated_delta_launches.cuh"
#include "kernels/gated_delta/gated_delta_tiles.cuh"
#include "kernels/hopper/griddepcontrol.cuh"
#include "kernels/machine.hpp"
#include "kernels/pack.cuh"

namespace stowage::kernels::gated_delta {
namespace {

constexpr int kThreads = 2 * kGroup;

/// U is that of two items in turn. kSum: what warpgroup 0 hands to warpgroup 1; room of results.
constexpr int kQ = 0, kK = kQ + kKeyBytes, kDy = kK + kKeyBytes, kW = kDy + kKeyBytes,
              kU = kW + kKeyBytes, kS = kU + 2 * kKeyBytes, kDs = kS + 2 * kKeyBytes,
              kD = kDs + 2 * kKeyBytes, kE = kD + kTileBytes, kSum = kE + kTileBytes,
              kVectors = kSum + 2 * kKeyBytes;

/// Sums of a head's tokens.
struct Sums {
  float own[kC], own_beta[kC], reads[kC], corrects[kC], read[kC], is_read[kC];
  float state[4];
};
struct Vectors {
  float factors[2][kFactors * kC];  // of items in turn
  Sums sums[2];
  int documents[2][kC];        // of chunks in turn
  Mbarrier keys, rows, s, ds;  // loads: of q and k; of dY, W, U and factors; of S; of dS'
  Mbarrier free;               // dY, W and S have been read
};
constexpr int kSharedBytes = kVectors + static_cast<int>(sizeof(Vectors));

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

/// Issues d = A^T B or, with kAdd, d += it: A (64, 64) one tile, B (64, 128) of rows along K.
template <bool kAdd>
__device__ __forceinline__ void issue_transposed(float (&d)[kWide / 2], std::uint32_t a_tile,
                                                 std::uint32_t b_tile) {
  constexpr std::uint32_t kStride = 8 * row_bytes(Swizzle::b128);
  const std::uint64_t a = wgmma_descriptor(a_tile, Swizzle::b128, kTileBytes, kStride);
  const std::uint64_t b = wgmma_descriptor(b_tile, Swizzle::b128, kTileBytes, kStride);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < kC / 16; ++k)
    Wgmma<kWide>::ss<1, 1>(d, advance(a, k * 16 * 128), advance(b, k * 16 * 128), kAdd || k > 0);
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

/// A chunk and head of v, of those that a block takes.
struct Item {
  int chunk, key_head, head;
  __device__ Item(const Arrays<Bf16, float>& p, int index) {
    const int heads = p.value_heads / p.key_heads;
    const int unit = static_cast<int>(blockIdx.x) + index / heads * static_cast<int>(gridDim.x);
    chunk = unit % p.chunks();
    key_head = unit / p.chunks();
    head = key_head * heads + index % heads;
  }
};

/// Loads by one thread.
__device__ __forceinline__ void load_keys(const Arrays<Bf16, float>& p, const Item& of,
                                          const CUtensorMap* qkv, Vectors& v) {
  const int token = of.chunk * kC, key = of.key_head * kWide;
  mbarrier_arrive_expect_tx(&v.keys, 2 * kKeyBytes);
  load_wide(shared_bytes + kK, qkv, &v.keys, static_cast<int>(p.keys()) + key, token);
  load_wide(shared_bytes + kQ, qkv, &v.keys, key, token);
}
__device__ __forceinline__ void load_rows(const Chunked& c, const Item& of, int index,
                                          const CUtensorMap* dy, Vectors& v) {
  const std::int64_t rows = c.arrays.rows(of.chunk, of.head);
  const int turn = index % 2;
  mbarrier_arrive_expect_tx(&v.rows, 3 * kKeyBytes + kFactorBytes);
  bulk_load(v.factors[turn], c.factors_of(of.chunk, of.head), kFactorBytes, &v.rows);
  bulk_load(shared_bytes + kU + turn * kKeyBytes, c.u + rows, kKeyBytes, &v.rows);
  load_wide(shared_bytes + kDy, dy, &v.rows, of.head * kWide, of.chunk * kC);
  bulk_load(shared_bytes + kW, c.w + rows, kKeyBytes, &v.rows);
}
__device__ __forceinline__ void load_state(std::byte* to, const Chunked& c, const Item& of,
                                           const Bf16* states, Mbarrier* barrier) {
  mbarrier_arrive_expect_tx(barrier, 2 * kKeyBytes);
  bulk_load(to, states + c.arrays.state(of.chunk, of.head), 2 * kKeyBytes, barrier);
}

/// The gradients of b and a of an item, by one warp, two tokens a lane.
__device__ __forceinline__ void store_gates(const Arrays<Bf16, float>& p, const Item& of,
                                            const Sums& sums, const float* factors, int lane) {
  float ends[2], all = 0;  // of the decays that end at a token, less those that begin behind it
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const int i = 2 * lane + e;
    ends[e] = sums.reads[i] + sums.corrects[i] - sums.is_read[i];
    all += sums.read[i];
  }
  all = lanes_sum<32>(all) +
        factors[kThrough * kC] * (sums.state[0] + sums.state[1] + sums.state[2] + sums.state[3]);
  float behind = ends[0] + ends[1];
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const float other = __shfl_down_sync(0xFFFFFFFFU, behind, static_cast<unsigned>(step));
    if (lane + step < 32) behind += other;
  }
  float dlog = 0, dbias = 0;
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const int i = 2 * lane + e;
    const float total = all + behind - (e == 1 ? ends[0] : 0);
    const float da = total * factors[kSlopes * kC + i];  // 0 behind the last token
    dlog += total * factors[kLogs * kC + i];
    dbias += da;
    if (i >= p.count(of.chunk)) continue;
    Bf16* const to = p.dba + (static_cast<std::int64_t>(of.chunk) * kC + i) * p.dba_stride;
    to[of.head] = device::round_to<Bf16>(sums.own_beta[i] * (1 - factors[kStrength * kC + i]));
    to[p.value_heads + of.head] = device::round_to<Bf16>(da);
  }
  dlog = lanes_sum<32>(dlog);
  dbias = lanes_sum<32>(dbias);
  if (lane != 0) return;
  p.partials[2 * p.at(of.chunk, of.head)] = dlog;
  p.partials[2 * p.at(of.chunk, of.head) + 1] = dbias;
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

__device__ __forceinline__ void copy_documents(const Arrays<Bf16, float>& p, int chunk, int* to) {
  if (threadIdx.x < kC) to[threadIdx.x] = p.document(chunk, static_cast<int>(threadIdx.x));
}

__global__ void __launch_bounds__(kThreads, 1)
    gradient_kernel(const Chunked c, const __grid_constant__ CUtensorMap qkv,
                    const __grid_constant__ CUtensorMap dy) {
  const Arrays<Bf16, float>& p = c.arrays;
  const int warp = uniform_warp_index(), heads = p.value_heads / p.key_heads;
  const bool reads = warp < 4;
  const Place place;
  const std::uint32_t tiles = shared_address(shared_bytes);
  Vectors& v = *reinterpret_cast<Vectors*>(shared_bytes + kVectors);
  const int left = p.chunks() * p.key_heads - static_cast<int>(blockIdx.x);
  const int grid = static_cast<int>(gridDim.x), items = (left + grid - 1) / grid * heads;
  griddepcontrol_wait();
  copy_documents(p, Item(p, 0).chunk, v.documents[0]);
  if (threadIdx.x == 0) {
    for (Mbarrier* const barrier : {&v.keys, &v.rows, &v.s, &v.ds}) mbarrier_init(barrier, 1);
    mbarrier_init(&v.free, kThreads);
    mbarrier_init_fence();
    const Item first(p, 0);
    load_rows(c, first, 0, &dy, v);
    load_state(shared_bytes + kS, c, first, c.states, &v.s);
    load_state(shared_bytes + kDs, c, first, c.dstates, &v.ds);
    load_keys(p, first, &qkv, v);
  }
  __syncthreads();
  float total[kWide / 2];
#pragma unroll
  for (float& value : total) value = 0;
#pragma unroll 1
  for (int index = 0; index < items; ++index) {
    const Place at = place.again();
    const int turn = index % 2, unit = index / heads;
    const float* const factors = v.factors[turn];
    Sums& sums = v.sums[turn];
    const auto row_factors = [&](Factor which) {
      const float* const of = factors + which * kC + at.row;
      return make_float2(of[0], of[8]);
    };
    const std::uint32_t rows = tiles + (reads ? kDy : kW), u = tiles + kU + turn * kKeyBytes;
    float d[kC / 2], x[kWide / 2];
    std::uint32_t a[kC / 4];
    mbarrier_wait(&v.rows, turn);
    issue_product<kC, false>(d, rows, u);
    wgmma_wait_group<0>();
    pin_registers(d);
    set_diagonal(reads ? sums.own : sums.own_beta, d, at);
    float2 weights = row_factors(reads ? kQueryNorm : kKeyNorm);
    if (!reads) {
      const float2 strength = row_factors(kStrength);
      weights = {-strength.x * weights.x, -strength.y * weights.y};
    }
    decay_pairs<true>(d, weights, factors + kKeyNorm * kC, factors + kSums * kC,
                      v.documents[unit % 2], at);
    to_operand(a, d);
    mbarrier_wait(&v.s, turn);
    issue_product<kWide, true>(x, rows, tiles + kS);
    store_pairs(tiles + (reads ? kD : kE), a, at);
    if (reads) {
      mbarrier_wait(&v.ds, turn);
      multiply_states(sums.state, at);
    }
    wgmma_wait_group<0>();
    pin_registers(x);
    mbarrier_arrive(&v.free);
    if (threadIdx.x == 0 && index + 1 < items) {
      mbarrier_wait(&v.free, turn);
      const Item next(p, index + 1);
      load_rows(c, next, index + 1, &dy, v);
      load_state(shared_bytes + kS, c, next, c.states, &v.s);
    }
    __syncwarp();
    const float2 enter = row_factors(reads ? kReads : kCorrects);
    const float sign = reads ? 1 : -1;
    scale_rows(x, sign * enter.x, sign * enter.y);
    if (index % heads == 0) mbarrier_wait(&v.keys, unit % 2);
    issue_columns<kWide, 4>(x, a, tiles + kK, true);
    wgmma_wait_group<0>();
    pin_registers(x);
    keep_operand(a);
    set_rows(reads ? sums.reads : sums.corrects, row_products(x, tiles + (reads ? kQ : kK), at),
             at);
    // D and E weigh pairs but those of a token with itself: these follow, without decay.
    const float2 q_norm = row_factors(kQueryNorm), k_norm = row_factors(kKeyNorm);
    const float2 own = {q_norm.x * k_norm.x, q_norm.y * k_norm.y};
    float2 own_reads = {};
    if (reads) own_reads = {own.x * sums.own[at.row], own.y * sums.own[at.row + 8]};
    add_rows(total, x, own_reads, tiles + kK, at);
    __syncthreads();  // D and E are there
    auto* const handed = reinterpret_cast<float4*>(shared_bytes + kSum) + 32 * at.warp + at.lane;
    if (reads) {
      issue_product<kWide, true>(x, u, tiles + kDs);
      wgmma_wait_group<0>();
      pin_registers(x);
      const float2 writes = row_factors(kWrites);
      scale_rows(x, writes.x, writes.y);
      set_rows(sums.read, row_products(x, tiles + kK, at), at);
#pragma unroll
      for (int j = 0; j < kWide / 8; ++j)
        handed[j * kGroup] = make_float4(x[4 * j], x[4 * j + 1], x[4 * j + 2], x[4 * j + 3]);
    } else {
      issue_transposed<false>(x, tiles + kD, tiles + kQ);
      issue_transposed<true>(x, tiles + kE, tiles + kK);
      wgmma_wait_group<0>();
      pin_registers(x);
    }
    __syncthreads();
    if (threadIdx.x == 0 && index + 1 < items)
      load_state(shared_bytes + kDs, c, Item(p, index + 1), c.dstates, &v.ds);
    if (!reads) {
#pragma unroll
      for (int j = 0; j < kWide / 8; ++j) {
        const float4 four = handed[j * kGroup];
        x[4 * j] += four.x;
        x[4 * j + 1] += four.y;
        x[4 * j + 2] += four.z;
        x[4 * j + 3] += four.w;
      }
      const Place late = place.again();
      set_rows(sums.is_read, row_products(x, tiles + kK, late), late);
      const float2 own_read = {own.x * sums.own[late.row], own.y * sums.own[late.row + 8]};
      add_rows(total, x, own_read, tiles + kQ, late);
    }
    const bool last = index % heads == heads - 1;
    if (last && index + 1 < items)
      copy_documents(p, Item(p, index + 1).chunk, v.documents[(unit + 1) % 2]);
    __syncthreads();
    const Item of(p, index);
    if (warp == 0) store_gates(p, of, sums, factors, at.lane);
    if (!last) continue;
    Bf16* const to = p.dqkv + static_cast<std::int64_t>(of.chunk) * kC * p.dqkv_stride +
                     static_cast<std::int64_t>(of.key_head) * kWide;
    store_gradient(to + (reads ? 0 : p.keys()), p.dqkv_stride, p.count(of.chunk), total,
                   tiles + (reads ? kQ : kK), factors + (reads ? kQueryNorm : kKeyNorm) * kC,
                   reads ? kWide : 1, shared_bytes + kSum + (reads ? 0 : kKeyBytes), place.again());
#pragma unroll
    for (float& value : total) value = 0;
    __syncthreads();  // q and k have been read
    if (threadIdx.x == 0 && index + 1 < items) load_keys(p, Item(p, index + 1), &qkv, v);
    __syncwarp();
  }
}

}  // namespace

int launch_gradients(const Chunked& c, void* stream) {
  const int units = c.arrays.chunks() * c.arrays.key_heads;
  return launch_dependent_blocks(gradient_kernel, std::min(units, machine().multiprocessors), 1,
                                 kThreads, kSharedBytes, stream, c, qkv_map(c.arrays),
                                 dy_map(c.arrays));
}

}  // namespace stowage::kernels::gated_delta
