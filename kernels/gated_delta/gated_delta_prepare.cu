// Gates, norms, T and M of every chunk of the gated delta rule for warp-group products: prepare()
// of gated_delta_chunk.hpp for bf16 storage and heads of 128.
//
// A block has a chunk and a head of q and k, whose products serve all heads of v that share it. Its
// first warpgroup makes K K^T, its second Q K^T; then each has every other head of v.
// T = (I + L)^-1: the diagonal blocks of 16 by substitution in fp32, what is below them by products
// of blocks. A warp has one column of blocks, transposed, so each block that it makes is an operand
// of the next one. Operands are sums of two bf16, so T has 16 digits before it is stored as bf16.
// Limits: latency of a head's steps, which are a chain.

#include "kernels/gated_delta/gated_delta.hpp"
#include "kernels/gated_delta/gated_delta_chunk.hpp"
#include "kernels/gated_delta/gated_delta_launches.cuh"
#include "kernels/gated_delta/gated_delta_tiles.cuh"
#include "kernels/hopper/griddepcontrol.cuh"
#include "kernels/hopper/mma.cuh"
#include "kernels/pack.cuh"

namespace stowage::kernels::gated_delta {
namespace {

constexpr int kThreads = 2 * kGroup;
constexpr int kBlock = 16;  // rows of a block of T
constexpr int kDiagonalPitch = kBlock + 1;

constexpr int kHeads = 8;  // whose gates are made at once, by a warp each

struct alignas(16) Gates {  ///< of a head; sum: of logarithms up to a token, all: of the chunk's
  float log[kC], slope[kC], beta[kC], sum[kC], all;
};

/// What a warpgroup makes T in.
struct Inversion {
  std::byte high[kTileBytes], low[kTileBytes];  ///< L as two bf16
  std::byte rooms[4 * 2048];                    ///< 16 rows of a tile for each warp
  float diagonal[4][kBlock * kDiagonalPitch];
  Bf16 blocks[4][2 * kBlock * kBlock];  ///< inverses of diagonal blocks, as two bf16
};

/// Products of pairs of tokens take the place of q and k.
constexpr int kQ = 0, kK = kQ + kKeyBytes, kPairs = kQ, kPairBytes = kC * kC * 4,
              kInversions = kK + kKeyBytes,
              kInversionBytes = (static_cast<int>(sizeof(Inversion)) + 1023) / 1024 * 1024,
              kGates = kInversions + 2 * kInversionBytes,
              kNorms = kGates + kHeads * static_cast<int>(sizeof(Gates)),
              kDocuments = kNorms + 2 * kC * 4, kSharedBytes = kDocuments + kC * 4;
static_assert(2 * kPairBytes == 2 * kKeyBytes);

extern __shared__ __align__(1024) std::byte shared_bytes[];

/// Four 8 x 8 matrices of rows [row, row + 16), chunks [chunk, chunk + 2), as an A operand.
__device__ __forceinline__ void load_a(std::uint32_t (&a)[4], std::uint32_t tile, int row,
                                       int chunk, int lane) {
  ldmatrix_x4(a, tile_address(tile, row + lane % 16, chunk + lane / 16));
}
/// The same as the B operands of two column blocks of 8: {0, 1} and {2, 3}.
__device__ __forceinline__ void load_b(std::uint32_t (&b)[4], std::uint32_t tile, int row,
                                       int chunk, int lane) {
  ldmatrix_x4(b, tile_address(tile, row + lane / 16 * 8 + lane % 8, chunk + lane / 8 % 2));
}

/// The sum of two bf16 that a value is.
struct Split {
  std::uint32_t high[4], low[4];
  __device__ __forceinline__ void set(int i, float first, float second) {
    high[i] = pack_bf16(first, second);
    low[i] = pack_bf16(first - unpack_low(high[i]), second - unpack_high(high[i]));
  }
};

/// A sum of products of blocks; what the lower halves add apart, so that chains are short.
struct Sum {
  float main[2][4] = {}, rest[2][4] = {};
  __device__ __forceinline__ void add(const Split& a, const std::uint32_t (&high)[4],
                                      const std::uint32_t (&low)[4]) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      mma_16x8x16(main[j][0], main[j][1], main[j][2], main[j][3], a.high, high[2 * j],
                  high[2 * j + 1]);
      mma_16x8x16(rest[j][0], rest[j][1], rest[j][2], rest[j][3], a.low, high[2 * j],
                  high[2 * j + 1]);
      mma_16x8x16(rest[j][0], rest[j][1], rest[j][2], rest[j][3], a.high, low[2 * j],
                  low[2 * j + 1]);
    }
  }
  __device__ __forceinline__ Split split(float sign) const {
    Split split;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float(&d)[4] = main[e / 2], (&r)[4] = rest[e / 2];
      const int i = e % 2 * 2;
      split.set(e, sign * (d[i] + r[i]), sign * (d[i + 1] + r[i + 1]));
    }
    return split;
  }
};

/// Gates of a head by one warp, two tokens a lane.
__device__ __forceinline__ void make_gates(const Arrays<Bf16, float>& p, int chunk, int head,
                                           Gates& gates, int lane) {
  const float rate = expf(device::to_float(p.a_log[head]));
  const float bias = device::to_float(p.dt_bias[head]);
  float log[2], slope[2], beta[2], sums[2];
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const int i = 2 * lane + e;
    log[e] = slope[e] = beta[e] = 0;
    if (i < p.count(chunk)) {
      const Bf16* ba = p.ba + (static_cast<std::int64_t>(chunk) * kC + i) * p.ba_stride;
      const float step = device::to_float(ba[p.value_heads + head]) + bias;
      log[e] = -rate * softplus_of(step);
      slope[e] = -rate * sigmoid_of(step);
      beta[e] = sigmoid_of(device::to_float(ba[head]));
    }
  }
  const float all = sum_logs(log, sums, lane);
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    gates.log[2 * lane + e] = log[e];
    gates.slope[2 * lane + e] = slope[e];
    gates.beta[2 * lane + e] = beta[e];
    gates.sum[2 * lane + e] = sums[e];
  }
  if (lane == 0) gates.all = all;
}

/// The factors of token i, for the kernels that follow.
__device__ __forceinline__ void store_factors(const Arrays<Bf16, float>& p, int chunk,
                                              const Gates& gates, const float* norms,
                                              const int* documents, float* factors, int i) {
  const std::int32_t entering = p.entering(chunk);
  const float sum = gates.sum[i], beta = gates.beta[i];
  const float enter = documents[i] == entering ? expf(sum) : 0;
  const float leave = documents[i] == documents[kC - 1] ? expf(gates.all - sum) : 0;
  factors[kStrength * kC + i] = beta;
  factors[kCorrects * kC + i] = beta * enter * norms[kC + i];
  factors[kReads * kC + i] = enter * norms[i];
  factors[kWrites * kC + i] = leave * norms[kC + i];
  factors[kThrough * kC + i] = documents[kC - 1] == entering ? expf(gates.all) : 0;
  factors[kSums * kC + i] = sum;
  factors[kLogs * kC + i] = gates.log[i];
  factors[kSlopes * kC + i] = gates.slope[i];
  factors[kQueryNorm * kC + i] = norms[i];
  factors[kKeyNorm * kC + i] = norms[kC + i];
}

/// Stores the warp's 16 rows of a tile, which lie in its room.
__device__ __forceinline__ void store_room(Bf16* to, const std::byte* room, int lane) {
  __syncwarp();
#pragma unroll
  for (int i = lane; i < 16 * 8; i += 32)
    reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(room)[i];
  __syncwarp();
}

/// The inverse of the warp's diagonal block of I + L, as two bf16 in `high` and, behind, `low`.
__device__ __forceinline__ void invert_block(const float* l, Bf16* block, int lane) {
  const int column = lane % kBlock;
  float x[kBlock];
#pragma unroll
  for (int i = 0; i < kBlock; ++i) x[i] = i == column ? 1 : 0;
#pragma unroll
  for (int m = 0; m + 1 < kBlock; ++m)
#pragma unroll
    for (int i = m + 1; i < kBlock; ++i) x[i] = fmaf(-l[i * kDiagonalPitch + m], x[m], x[i]);
  if (lane >= kBlock) return;
#pragma unroll
  for (int i = 0; i < kBlock; ++i) {
    const Bf16 high = device::round_to<Bf16>(x[i]);
    block[i * kBlock + column] = high;
    block[(kBlock + i) * kBlock + column] = device::round_to<Bf16>(x[i] - device::to_float(high));
  }
}

/// Column `at.warp` of the blocks of T, transposed, into the warp's room.
__device__ __forceinline__ void sweep(const Inversion& work, std::uint32_t room, const Place& at) {
  const std::uint32_t high = shared_address(work.high), low = shared_address(work.low);
  // Rows of the block as columns of the operand.
  const auto turned =
      static_cast<std::uint32_t>((at.lane / 16 * 8 + at.lane % 8) * 32 + at.lane / 8 % 2 * 16);
  const auto block = [&](int r, int part) {
    return shared_address(&work.blocks[r][part * kBlock * kBlock]) + turned;
  };
  const auto store = [&](int r, const std::uint32_t(&z)[4]) {
    stmatrix_x4(tile_address(room, at.lane % 16, 2 * r + at.lane / 16), z[0], z[1], z[2], z[3]);
  };
  const int column = at.warp;
  constexpr std::uint32_t kZero[4] = {};
  for (int r = 0; r < column; ++r) store(r, kZero);
  Split z[4];
  ldmatrix_x4_trans(z[0].high, block(column, 0));
  ldmatrix_x4_trans(z[0].low, block(column, 1));
  store(column, z[0].high);
#pragma unroll
  for (int step = 1; step < 4; ++step) {
    const int r = column + step;
    if (r >= 4) break;
    std::uint32_t b_high[4], b_low[4];
    Sum sum, result;
#pragma unroll
    for (int m = 0; m < step; ++m) {
      load_b(b_high, high, kBlock * r, 2 * (column + m), at.lane);
      load_b(b_low, low, kBlock * r, 2 * (column + m), at.lane);
      sum.add(z[m], b_high, b_low);
    }
    ldmatrix_x4(b_high, block(r, 0));
    ldmatrix_x4(b_low, block(r, 1));
    result.add(sum.split(-1), b_high, b_low);
    z[step] = result.split(1);
    store(r, z[step].high);
  }
}

/// A warpgroup's barrier; its number is a constant, since of others ptxas counts all.
__device__ __forceinline__ void sync_group(int group) {
  if (group == 0)
    named_barrier_sync(1, kGroup);
  else
    named_barrier_sync(2, kGroup);
}

/// M and T of a head by a warpgroup, from the products of pairs of tokens.
__device__ __forceinline__ void make_tiles(const Chunked& c, int chunk, int head,
                                           const Gates& gates, const float* norms,
                                           const int* documents, Inversion& work, int group,
                                           const Place& at) {
  const std::int64_t tile = (c.arrays.at(chunk, head) * kC + 16 * at.warp) * kC;
  std::byte* const room = work.rooms + at.warp * 2048;
  const float* const k_norm = norms + kC;
  const auto load_pairs = [&](float(&d)[kC / 2], int which) {
    const auto* from = reinterpret_cast<const float4*>(shared_bytes + kPairs + which * kPairBytes);
#pragma unroll
    for (int j = 0; j < kC / 8; ++j) {
      const float4 four = from[j * kGroup + 32 * at.warp + at.lane];
      d[4 * j] = four.x;
      d[4 * j + 1] = four.y;
      d[4 * j + 2] = four.z;
      d[4 * j + 3] = four.w;
    }
  };
  float d[kC / 2];
  load_pairs(d, 0);
  decay_pairs<true>(
      d,
      make_float2(gates.beta[at.row] * k_norm[at.row], gates.beta[at.row + 8] * k_norm[at.row + 8]),
      k_norm, gates.sum, documents, at);
  float* const diagonal = work.diagonal[at.warp];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if (j > at.warp) break;
    Split split;
#pragma unroll
    for (int e = 0; e < 4; ++e) split.set(e, d[8 * j + 2 * e], d[8 * j + 2 * e + 1]);
    const auto store = [&](const std::byte* to, const std::uint32_t(&part)[4]) {
      stmatrix_x4(
          tile_address(shared_address(to), 16 * at.warp + at.lane % 16, 2 * j + at.lane / 16),
          part[0], part[1], part[2], part[3]);
    };
    store(work.high, split.high);
    store(work.low, split.low);
    if (j < at.warp) continue;
#pragma unroll
    for (int e = 0; e < 8; ++e)
      diagonal[(at.lane / 4 + (e & 2) * 4) * kDiagonalPitch + e / 4 * 8 + at.column + (e & 1)] =
          d[8 * j + e];
  }
  __syncwarp();
  invert_block(diagonal, work.blocks[at.warp], at.lane);
  sync_group(group);
  sweep(work, shared_address(room), at);
  store_room(c.inverse + tile, room, at.lane);
  load_pairs(d, 1);
  decay_pairs<false>(d, make_float2(norms[at.row], norms[at.row + 8]), k_norm, gates.sum, documents,
                     at);
#pragma unroll
  for (int k = 0; k < 4; ++k)
    stmatrix_x4(tile_address(shared_address(room), at.lane % 16, 2 * k + at.lane / 16),
                pack_bf16(d[8 * k], d[8 * k + 1]), pack_bf16(d[8 * k + 2], d[8 * k + 3]),
                pack_bf16(d[8 * k + 4], d[8 * k + 5]), pack_bf16(d[8 * k + 6], d[8 * k + 7]));
  store_room(c.scores + tile, room, at.lane);
  sync_group(group);
}

__global__ void __launch_bounds__(kThreads, 2)
    prepare_kernel(const Chunked c, const float epsilon) {
  const Arrays<Bf16, float>& p = c.arrays;
  const int chunk = static_cast<int>(blockIdx.x), key_head = static_cast<int>(blockIdx.y);
  const int thread = static_cast<int>(threadIdx.x), heads = p.value_heads / p.key_heads;
  const Place at;
  const int group = uniform_warp_index() / 4;
  const std::uint32_t tiles = shared_address(shared_bytes);
  auto* const norms = reinterpret_cast<float*>(shared_bytes + kNorms);
  auto* const documents = reinterpret_cast<int*>(shared_bytes + kDocuments);
  auto* const gates = reinterpret_cast<Gates*>(shared_bytes + kGates);
  auto& work = *reinterpret_cast<Inversion*>(shared_bytes + kInversions + group * kInversionBytes);
  griddepcontrol_launch_dependents();
  const Bf16* q = p.qkv + static_cast<std::int64_t>(chunk) * kC * p.qkv_stride +
                  static_cast<std::int64_t>(key_head) * kWide;
  copy_tiles<2, kThreads>(tiles + kQ, q, p.qkv_stride, p.count(chunk), thread);
  copy_tiles<2, kThreads>(tiles + kK, q + p.keys(), p.qkv_stride, p.count(chunk), thread);
  async_copy_commit();
  if (thread < kC) documents[thread] = p.document(chunk, thread);
  const auto gates_from = [&](int first) {
    const int member = first + uniform_warp_index();
    if (member < heads)
      make_gates(p, chunk, key_head * heads + member, gates[member - first], at.lane);
  };
  gates_from(0);
  async_copy_wait<0>();
  __syncthreads();
  {  // Two threads a row of q or k.
    const int row = thread / 2 % kC;
    const int tile = group == 0 ? kQ : kK;
    float squares = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int chunk16 = 2 * i + thread % 2;
      const std::uint32_t offset = tile_address(
          static_cast<std::uint32_t>(tile + chunk16 / 8 * kTileBytes), row, chunk16 % 8);
      float values[8];
      device::unpack<Bf16>(*reinterpret_cast<const uint4*>(shared_bytes + offset), values);
#pragma unroll
      for (const float value : values) squares = fmaf(value, value, squares);
    }
    squares = lanes_sum<2>(squares);
    const float scale = group == 0 ? rsqrtf(static_cast<float>(kWide)) : 1;
    if (thread % 2 == 0) norms[group * kC + row] = scale / sqrtf(squares + epsilon);
  }
  {  // Rows of K K^T or Q K^T; those of later tokens than the warp's are not needed.
    float pairs[8][4] = {};
#pragma unroll
    for (int k = 0; k < kWide / 16; ++k) {
      const auto tile = static_cast<std::uint32_t>(k / 4 * kTileBytes);
      std::uint32_t a[4], b[4];
      load_a(a, tiles + (group == 0 ? kK : kQ) + tile, 16 * at.warp, 2 * k % 8, at.lane);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (j > at.warp) break;
        load_b(b, tiles + kK + tile, 16 * j, 2 * k % 8, at.lane);
        mma_16x8x16(pairs[2 * j][0], pairs[2 * j][1], pairs[2 * j][2], pairs[2 * j][3], a, b[0],
                    b[1]);
        mma_16x8x16(pairs[2 * j + 1][0], pairs[2 * j + 1][1], pairs[2 * j + 1][2],
                    pairs[2 * j + 1][3], a, b[2], b[3]);
      }
    }
    __syncthreads();  // q and k have been read
    auto* const to = reinterpret_cast<float4*>(shared_bytes + kPairs + group * kPairBytes);
#pragma unroll
    for (int j = 0; j < 8; ++j)
      to[j * kGroup + 32 * at.warp + at.lane] =
          make_float4(pairs[j][0], pairs[j][1], pairs[j][2], pairs[j][3]);
  }
  __syncthreads();
  for (int first = 0; first < heads; first += kHeads) {
    if (first > 0) {
      __syncthreads();
      gates_from(first);
      __syncthreads();
    }
    for (int member = first + group; member < min(heads, first + kHeads); member += 2) {
      const int head = key_head * heads + member;
      const Gates& of = gates[member - first];
      const int i = thread % kGroup;
      if (i < kC) store_factors(p, chunk, of, norms, documents, c.factors_of(chunk, head), i);
      make_tiles(c, chunk, head, of, norms, documents, work, group, at);
    }
  }
}

}  // namespace

int launch_prepare(const Chunked& c, void* stream) {
  return launch_blocks(prepare_kernel, c.arrays.chunks(), c.arrays.key_heads, kThreads,
                       kSharedBytes, stream, c, static_cast<float>(kGatedDeltaEpsilon));
}

}  // namespace stowage::kernels::gated_delta
