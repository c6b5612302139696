// Gates, norms, T and M of every chunk of the gated delta rule for warp-group products: prepare()
// of gated_delta_chunk.hpp for bf16 storage and heads of 128.
//
// A block has a chunk and a head of q and k, whose products serve all heads of v that share it.
// Warps 0 to 3 have 16 rows of K K^T each, then L and T; warps 4 to 7 those of Q K^T, then M.
// T = (I + L)^-1: the diagonal blocks of 16 by substitution in fp32, what is below them by products
// of blocks. A warp has one column of blocks, transposed, so each block that it makes is an operand
// of the next one. Operands are sums of two bf16, so T has 16 digits before it is stored as bf16.
// Limits: memory, and the substitution, whose 16 steps are a chain.

#include "kernels/gated_delta/gated_delta.hpp"
#include "kernels/gated_delta/gated_delta_chunk.hpp"
#include "kernels/gated_delta/gated_delta_launches.cuh"
#include "kernels/gated_delta/gated_delta_tiles.cuh"
#include "kernels/hopper/mma.cuh"
#include "kernels/pack.cuh"

namespace stowage::kernels::gated_delta {
namespace {

constexpr int kThreads = 2 * kGroup;
constexpr int kBlock = 16;  // rows of a block of T
constexpr int kDiagonalPitch = kBlock + 1;

struct Gates {  ///< of a head, made by each group of warps for itself
  float beta[kC], sum[kC];
};

constexpr int kQ = 0, kK = kQ + kKeyBytes, kHigh = kK + kKeyBytes, kLow = kHigh + kTileBytes,
              kRoom = kLow + kTileBytes, kDiagonal = kRoom + 8 * 2048,
              kBlocks = kDiagonal + 4 * kBlock * kDiagonalPitch * 4,
              kGates = kBlocks + 4 * 2 * kBlock * kBlock * 2,
              kNorms = kGates + 2 * static_cast<int>(sizeof(Gates)),
              kDocuments = kNorms + 2 * kC * 4, kSharedBytes = kDocuments + kC * 4;

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
  /// Of an accumulator of two blocks of 8 columns.
  __device__ __forceinline__ void set(const float (&d)[2][4], float sign) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      set(2 * j, sign * d[j][0], sign * d[j][1]);
      set(2 * j + 1, sign * d[j][2], sign * d[j][3]);
    }
  }
};

/// d += a b, 16 x 16 x 16.
__device__ __forceinline__ void add_product(float (&d)[2][4], const Split& a,
                                            const std::uint32_t (&high)[4],
                                            const std::uint32_t (&low)[4]) {
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    mma_16x8x16(d[j][0], d[j][1], d[j][2], d[j][3], a.low, high[2 * j], high[2 * j + 1]);
    mma_16x8x16(d[j][0], d[j][1], d[j][2], d[j][3], a.high, low[2 * j], low[2 * j + 1]);
    mma_16x8x16(d[j][0], d[j][1], d[j][2], d[j][3], a.high, high[2 * j], high[2 * j + 1]);
  }
}

/// Gates of a head by one warp, two tokens a lane; also the fields if `fields` is not null.
__device__ __forceinline__ void make_gates(const Arrays<Bf16, float>& p, int chunk, int head,
                                           Gates& gates, const float* norms, const int* documents,
                                           float* fields, int lane) {
  const float rate = expf(device::to_float(p.a_log[head]));
  const float bias = device::to_float(p.dt_bias[head]);
  float log[2], beta[2];
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const int i = 2 * lane + e;
    log[e] = beta[e] = 0;
    if (i < p.count(chunk)) {
      const Bf16* ba = p.ba + (static_cast<std::int64_t>(chunk) * kC + i) * p.ba_stride;
      log[e] = -rate * softplus_of(device::to_float(ba[p.value_heads + head]) + bias);
      beta[e] = sigmoid_of(device::to_float(ba[head]));
    }
  }
  float sums[2];
  const float all = sum_logs(log, sums, lane);
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const int i = 2 * lane + e;
    gates.beta[i] = beta[e];
    gates.sum[i] = sums[e];
    if (fields == nullptr) continue;
    fields[kLog * kC + i] = log[e];
    fields[kBeta * kC + i] = beta[e];
    fields[kEnter * kC + i] = documents[i] == p.entering(chunk) ? expf(sums[e]) : 0;
    fields[kLeave * kC + i] = documents[i] == documents[kC - 1] ? expf(all - sums[e]) : 0;
    fields[kQNorm * kC + i] = norms[i];
    fields[kKNorm * kC + i] = norms[kC + i];
  }
}

/// Stores the warp's 16 rows of a tile, which lie in its room, to global memory.
__device__ __forceinline__ void store_rows(Bf16* to, const std::byte* room, int lane) {
  const std::uint32_t base = shared_address(room);
  __syncwarp();
#pragma unroll
  for (int i = lane; i < 16 * 8; i += 32)
    *reinterpret_cast<uint4*>(to + i / 8 * kC + i % 8 * 8) =
        *reinterpret_cast<const uint4*>(room + (tile_address(base, i / 8, i % 8) - base));
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
__device__ __forceinline__ void sweep(const std::byte* blocks, std::uint32_t high,
                                      std::uint32_t low, std::uint32_t room, const Place& at) {
  const auto block = [&](int r, int part) {
    return shared_address(blocks) +
           static_cast<std::uint32_t>((2 * r + part) * kBlock * kBlock * 2);
  };
  const auto store = [&](int r, const std::uint32_t(&z)[4]) {
    stmatrix_x4(tile_address(room, at.lane % 16, 2 * r + at.lane / 16), z[0], z[1], z[2], z[3]);
  };
  const int column = at.warp;
  constexpr std::uint32_t kZero[4] = {};
  for (int r = 0; r < column; ++r) store(r, kZero);
  Split z[4];
  // Rows of the block as columns of the operand.
  const auto turned =
      static_cast<std::uint32_t>((at.lane / 16 * 8 + at.lane % 8) * 32 + at.lane / 8 % 2 * 16);
  ldmatrix_x4_trans(z[0].high, block(column, 0) + turned);
  ldmatrix_x4_trans(z[0].low, block(column, 1) + turned);
  store(column, z[0].high);
#pragma unroll
  for (int step = 1; step < 4; ++step) {
    const int r = column + step;
    if (r >= 4) break;
    float sum[2][4] = {};
    std::uint32_t b_high[4], b_low[4];
#pragma unroll
    for (int m = 0; m < step; ++m) {
      load_b(b_high, high, kBlock * r, 2 * (column + m), at.lane);
      load_b(b_low, low, kBlock * r, 2 * (column + m), at.lane);
      add_product(sum, z[m], b_high, b_low);
    }
    Split corrected;
    corrected.set(sum, -1);
    ldmatrix_x4(b_high, block(r, 0) + turned);
    ldmatrix_x4(b_low, block(r, 1) + turned);
    float result[2][4] = {};
    add_product(result, corrected, b_high, b_low);
    z[step].set(result, 1);
    store(r, z[step].high);
  }
}

/// Barriers with constant numbers: of others ptxas counts all.
__device__ __forceinline__ void sync_group(int group) {
  if (group == 0)
    named_barrier_sync(1, kGroup);
  else
    named_barrier_sync(2, kGroup);
}

__global__ void __launch_bounds__(kThreads, 2)
    prepare_kernel(const Chunked c, const float epsilon) {
  const Arrays<Bf16, float>& p = c.arrays;
  const int chunk = static_cast<int>(blockIdx.x), key_head = static_cast<int>(blockIdx.y);
  const int thread = static_cast<int>(threadIdx.x), heads = p.value_heads / p.key_heads;
  const Place at;
  const int group = thread / kGroup;
  const std::uint32_t tiles = shared_address(shared_bytes);
  auto* const norms = reinterpret_cast<float*>(shared_bytes + kNorms);
  auto* const documents = reinterpret_cast<int*>(shared_bytes + kDocuments);
  Gates& gates = reinterpret_cast<Gates*>(shared_bytes + kGates)[group];
  const Bf16* q = p.qkv + static_cast<std::int64_t>(chunk) * kC * p.qkv_stride +
                  static_cast<std::int64_t>(key_head) * kWide;
  copy_tiles<2, kThreads>(tiles + kQ, q, p.qkv_stride, p.count(chunk), thread);
  copy_tiles<2, kThreads>(tiles + kK, q + p.keys(), p.qkv_stride, p.count(chunk), thread);
  async_copy_commit();
  if (thread < kC) documents[thread] = p.document(chunk, thread);
  async_copy_wait<0>();
  __syncthreads();
  {  // Two threads a row of q or k.
    const int row = thread / 2 % kC;
    const std::uint32_t tile = tiles + (thread < kGroup ? kQ : kK);
    float squares = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int chunk16 = 2 * i + thread % 2;
      float values[8];
      device::unpack<Bf16>(
          *reinterpret_cast<const uint4*>(
              shared_bytes +
              (tile_address(tile + static_cast<std::uint32_t>(chunk16 / 8 * kTileBytes), row,
                            chunk16 % 8) -
               tiles)),
          values);
#pragma unroll
      for (const float value : values) squares = fmaf(value, value, squares);
    }
    squares = lanes_sum<2>(squares);
    const float scale = thread < kGroup ? rsqrtf(static_cast<float>(kWide)) : 1;
    if (thread % 2 == 0) norms[thread / kGroup * kC + row] = scale / sqrtf(squares + epsilon);
  }
  // Rows of K K^T or Q K^T; those of later tokens than the warp's are not needed.
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
  __syncthreads();
  std::byte* const room = shared_bytes + kRoom + (4 * group + at.warp) * 2048;
  const float* const k_norm = norms + kC;
  for (int head = key_head * heads; head < (key_head + 1) * heads; ++head) {
    const std::int64_t tile = (p.at(chunk, head) * kC + 16 * at.warp) * kC;
    if (at.warp == 0)
      make_gates(p, chunk, head, gates, norms, documents,
                 group == 0 ? p.fields + p.at(chunk, head) * kFields * kC : nullptr, at.lane);
    sync_group(group);
    float d[kC / 2];
#pragma unroll
    for (int j = 0; j < kC / 2; ++j) d[j] = pairs[j / 4][j % 4];
    if (group == 1) {
      decay_pairs<false>(d, make_float2(norms[at.row], norms[at.row + 8]), k_norm, gates.sum,
                         documents, at);
#pragma unroll
      for (int k = 0; k < 4; ++k)
        stmatrix_x4(tile_address(shared_address(room), at.lane % 16, 2 * k + at.lane / 16),
                    pack_bf16(d[8 * k], d[8 * k + 1]), pack_bf16(d[8 * k + 2], d[8 * k + 3]),
                    pack_bf16(d[8 * k + 4], d[8 * k + 5]), pack_bf16(d[8 * k + 6], d[8 * k + 7]));
      store_rows(c.scores + tile, room, at.lane);
    } else {
      const float2 rows = {gates.beta[at.row] * k_norm[at.row],
                           gates.beta[at.row + 8] * k_norm[at.row + 8]};
      decay_pairs<true>(d, rows, k_norm, gates.sum, documents, at);
      auto* const diagonal =
          reinterpret_cast<float*>(shared_bytes + kDiagonal) + at.warp * kBlock * kDiagonalPitch;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (j > at.warp) break;
        Split split;
#pragma unroll
        for (int e = 0; e < 4; ++e) split.set(e, d[8 * j + 2 * e], d[8 * j + 2 * e + 1]);
        const auto to = [&](int low) {
          return tile_address(tiles + (low ? kLow : kHigh), 16 * at.warp + at.lane % 16,
                              2 * j + at.lane / 16);
        };
        stmatrix_x4(to(0), split.high[0], split.high[1], split.high[2], split.high[3]);
        stmatrix_x4(to(1), split.low[0], split.low[1], split.low[2], split.low[3]);
        if (j < at.warp) continue;
#pragma unroll
        for (int e = 0; e < 8; ++e)
          diagonal[(at.lane / 4 + (e & 2) * 4) * kDiagonalPitch + e / 4 * 8 + at.column + (e & 1)] =
              d[8 * j + e];
      }
      __syncwarp();
      auto* const blocks = shared_bytes + kBlocks;
      invert_block(diagonal, reinterpret_cast<Bf16*>(blocks) + at.warp * 2 * kBlock * kBlock,
                   at.lane);
      sync_group(0);
      sweep(blocks, tiles + kHigh, tiles + kLow, shared_address(room), at);
      store_rows(c.inverse + tile, room, at.lane);
    }
    sync_group(group);
  }
}

}  // namespace

int launch_prepare(const Chunked& c, void* stream) {
  return launch_blocks(prepare_kernel, c.arrays.chunks(), c.arrays.key_heads, kThreads,
                       kSharedBytes, stream, c, static_cast<float>(kGatedDeltaEpsilon));
}

}  // namespace stowage::kernels::gated_delta
