// The parts of attention_step.cu on tensor cores: bf16, heads of 64, 128 or 256 columns. Bound by
// memory: all query heads of a kv head share one read of its keys and values, 16 bytes a lane.
//
// A block has kPart positions, a warp of it every kWarps-th chunk of 16. Keys and values go from
// memory into registers as the second operand of a product: a sum over columns may take them in any
// order, so a lane's 16 bytes of a key are what it holds of two products, and a column of values
// may stand at any place of a result (PTX, "Matrix fragments for mma.m16n8k16"). The next chunk is
// under way meanwhile.
//
// Scores and sums are fp32. A weight is the sum of two bf16, which leaves 2^-17 of it: its second
// part is the product's rows 8 to 15 if there are up to 8 query heads, else a product of its own.
// A warp keeps the largest score so far and scales its sums when that grows (online softmax).

#include <cmath>

#include "kernels/access.cuh"
#include "kernels/decode/decode_launch.hpp"
#include "kernels/hopper/convert.cuh"
#include "kernels/hopper/dependent_launch.cuh"
#include "kernels/hopper/griddepcontrol.cuh"
#include "kernels/hopper/mma.cuh"

namespace stowage::kernels::decode {
namespace {

using execution::Bf16;

constexpr int kLanes = 32, kWarps = 4, kThreads = kWarps * kLanes;
constexpr int kChunk = 16;  ///< positions that a warp takes at a time: the depth of a product
constexpr int kPack = device::kPackSize<Bf16>;

/// Registers suffice for the next chunk beside this one's sums up to 128 columns.
constexpr bool looks_ahead(int dim) { return dim <= 128; }
/// Elements from one query to the next, so that eight of them lie in different banks.
constexpr int query_room(int dim) { return dim + kPack; }
constexpr int blocks_at_once(int dim) { return looks_ahead(dim) ? 3 : 2; }

/// What a block has of a cache, and the row that the token adds to it.
struct Part {
  const Bf16* keys;  ///< of its first position
  const Bf16* values;
  const Bf16* own_key;
  const Bf16* own_value;
  int last;   ///< the last position that counts, from the first on
  int own;    ///< that of the token, which may lie behind this part
  int heads;  ///< query heads
};

template <int kDim>
struct Chunk {
  static constexpr int kPieces = kDim / kLanes;       ///< 16-byte pieces of a key, over 4 lanes
  static constexpr int kBlocks = kDim / (8 * kPack);  ///< 64 columns of values, over 8 lanes
  uint4 keys[2][kPieces];
  uint4 values[kBlocks][4];
};

__device__ __forceinline__ uint4 load_pack(const Bf16* from) {
  return __ldcs(reinterpret_cast<const uint4*>(from));
}

template <int kDim>
__device__ __forceinline__ void load_keys(const Part& part, int first, Chunk<kDim>& chunk) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes, group = lane / 4, column = lane % 4;
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
    const int t = min(first + 8 * tile + group, part.last);
    const Bf16* row = t == part.own ? part.own_key : part.keys + t * kDim;
#pragma unroll
    for (int i = 0; i < Chunk<kDim>::kPieces; ++i)
      chunk.keys[tile][i] = load_pack(row + i * kLanes + column * kPack);
  }
}

template <int kDim>
__device__ __forceinline__ void load_values(const Part& part, int first, Chunk<kDim>& chunk) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes, group = lane / 4, column = lane % 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int t = min(first + 2 * column + i % 2 + 8 * (i / 2), part.last);
    const Bf16* row = t == part.own ? part.own_value : part.values + t * kDim;
#pragma unroll
    for (int block = 0; block < Chunk<kDim>::kBlocks; ++block)
      chunk.values[block][i] = load_pack(row + (block * 8 + group) * kPack);
  }
}

__device__ __forceinline__ std::uint32_t word(const uint4& pack, int i) {
  return i == 0 ? pack.x : i == 1 ? pack.y : i == 2 ? pack.z : pack.w;
}
/// Element e of two packs, side by side.
__device__ __forceinline__ std::uint32_t pair(const uint4& low, const uint4& high, int e) {
  return __byte_perm(word(low, e / 2), word(high, e / 2), e % 2 == 0 ? 0x5410 : 0x7632);
}

/// The largest of the four lanes that have a row of a product.
__device__ __forceinline__ float row_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFU, value, 1));
  return fmaxf(value, __shfl_xor_sync(0xFFFFFFFFU, value, 2));
}
__device__ __forceinline__ float row_sum(float value) {
  value += __shfl_xor_sync(0xFFFFFFFFU, value, 1);
  return value + __shfl_xor_sync(0xFFFFFFFFU, value, 2);
}

/// Two weights as bf16, and what that leaves of them.
struct Weights {
  std::uint32_t high, low;
};
__device__ __forceinline__ Weights split(float a, float b) {
  const std::uint32_t high = hopper::pack_bf16(a, b);
  return {high, hopper::pack_bf16(a - hopper::unpack_low(high), b - hopper::unpack_high(high))};
}

/// Sums of a warp: of each query head that a lane has a row of, the largest score, the sum of
/// weights, and weighted sums of values: d[0], d[1] of row lane / 4; d[2], d[3] of the row 8 below,
/// which is another head (kWide) or the same head's sums by the weights' second parts.
template <int kDim, bool kWide>
struct Sums {
  static constexpr int kBlocks = Chunk<kDim>::kBlocks, kRows = kWide ? 2 : 1;
  float largest[kRows], weights[kRows];
  float d[kBlocks][kPack][4];

  __device__ void clear() {
#pragma unroll
    for (int r = 0; r < kRows; ++r) largest[r] = -INFINITY, weights[r] = 0;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block)
#pragma unroll
      for (int e = 0; e < kPack; ++e)
#pragma unroll
        for (int i = 0; i < 4; ++i) d[block][e][i] = 0;
  }
  /// Makes scores of 16 positions weights, and what was summed before a sum of weights like them.
  __device__ void soften(float (&scores)[2][4]) {
    float factor[kRows];
    bool grows = false;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float most = row_max(fmaxf(fmaxf(scores[0][2 * r], scores[0][2 * r + 1]),
                                       fmaxf(scores[1][2 * r], scores[1][2 * r + 1])));
      const float next = fmaxf(largest[r], most);
      grows = grows || next > largest[r];
      factor[r] = expf(largest[r] - next);
      largest[r] = next;
      float sum = 0;
#pragma unroll
      for (int tile = 0; tile < 2; ++tile)
#pragma unroll
        for (int i = 2 * r; i < 2 * r + 2; ++i)
          sum += scores[tile][i] = expf(scores[tile][i] - next);
      weights[r] = fmaf(weights[r], factor[r], sum);  // of a lane's positions
    }
    if (!__any_sync(0xFFFFFFFFU, grows)) return;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block)
#pragma unroll
      for (int e = 0; e < kPack; ++e)
#pragma unroll
        for (int i = 0; i < 4; ++i) d[block][e][i] *= factor[kWide ? i / 2 : 0];
  }
  __device__ void add(const float (&scores)[2][4], const Chunk<kDim>& chunk) {
    std::uint32_t high[4], low[4];
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      const Weights upper = split(scores[tile][0], scores[tile][1]);
      high[2 * tile] = upper.high, high[2 * tile + 1] = upper.low;
      if constexpr (kWide) {
        const Weights lower = split(scores[tile][2], scores[tile][3]);
        high[2 * tile + 1] = lower.high;
        low[2 * tile] = upper.low, low[2 * tile + 1] = lower.low;
      }
    }
#pragma unroll
    for (int block = 0; block < kBlocks; ++block)
#pragma unroll
      for (int e = 0; e < kPack; ++e) {
        const uint4(&rows)[4] = chunk.values[block];
        const std::uint32_t b0 = pair(rows[0], rows[1], e), b1 = pair(rows[2], rows[3], e);
        float(&sum)[4] = d[block][e];
        hopper::mma_16x8x16(sum[0], sum[1], sum[2], sum[3], high, b0, b1);
        if constexpr (kWide) hopper::mma_16x8x16(sum[0], sum[1], sum[2], sum[3], low, b0, b1);
      }
  }
};

/// Scores of 16 positions: s[tile] holds of rows lane / 4 and, 8 below, positions 8 tile +
/// 2 (lane % 4) and the next. Those behind the part's last, `left` further than the first, are
/// -infinity. The queries are read again each time, which leaves registers to keys and values.
template <int kDim, bool kWide>
__device__ __forceinline__ void make_scores(const Bf16 (*q)[query_room(kDim)],
                                            const Chunk<kDim>& chunk, float scale, int left,
                                            float (&s)[2][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes, group = lane / 4, column = lane % 4;
#pragma unroll
  for (int tile = 0; tile < 2; ++tile)
#pragma unroll
    for (int i = 0; i < 4; ++i) s[tile][i] = 0;
#pragma unroll
  for (int i = 0; i < kDim / kLanes; ++i) {
    const auto query = [&](int row) {
      return *reinterpret_cast<const uint4*>(&q[row][i * kLanes + column * kPack]);
    };
    const uint4 upper = query(group), lower = kWide ? query(group + 8) : uint4{0, 0, 0, 0};
#pragma unroll
    for (int tile = 0; tile < 2; ++tile)
#pragma unroll
      for (int half = 0; half < 4; half += 2) {
        const std::uint32_t a[4] = {word(upper, half), word(lower, half), word(upper, half + 1),
                                    word(lower, half + 1)};
        const uint4& key = chunk.keys[tile][i];
        float(&sum)[4] = s[tile];
        hopper::mma_16x8x16(sum[0], sum[1], sum[2], sum[3], a, word(key, half),
                            word(key, half + 1));
      }
  }
#pragma unroll
  for (int tile = 0; tile < 2; ++tile)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      s[tile][i] = 8 * tile + 2 * column + i % 2 <= left ? scale * s[tile][i] : -INFINITY;
}

/// Memory that a block's warps share.
template <int kDim, bool kWide>
struct Shared {
  static constexpr int kHeads = kWide ? 16 : 8;
  static constexpr int kRoom =
      kDim + 8;  ///< from one row to the next, so that they meet in no bank
  alignas(16) Bf16 q[kHeads][query_room(kDim)];
  alignas(16) float sums[kWarps][kHeads][kRoom];
  float2 weights[kWarps][kHeads];  ///< the largest score, and the sum of weights
};

/// The part of a block; nothing counts in it if `last` is negative.
template <int kDim, int kHeads>
__device__ __forceinline__ Part part_of(const Attention<Bf16>& args, const Bf16* of_token,
                                        std::int64_t cache, int kv_head, int share) {
  const std::int64_t first = (cache * args.window + blockIdx.y * kPart) * kDim;
  const std::int64_t left = args.positions[cache / args.kv_heads] - blockIdx.y * kPart;
  return {.keys = args.keys + first,
          .values = args.values + first,
          .own_key = of_token + (args.heads + kv_head) * kDim,
          .own_value = of_token + (args.heads + args.kv_heads + kv_head) * kDim,
          .last = static_cast<int>(min(left, kPart - 1)),
          .own = left < kPart ? static_cast<int>(left) : -1,
          .heads = min(kHeads, args.heads / args.kv_heads - share * kHeads)};
}

/// The token's row of the caches: written by one block, read from there by none.
template <int kDim>
__device__ __forceinline__ void append(const Attention<Bf16>& args, const Part& part) {
  constexpr int kPacks = kDim / kPack;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread >= 2 * kPacks) return;
  const bool value = thread >= kPacks;
  const std::int64_t to = (value ? part.values - args.values : part.keys - args.keys) +
                          part.own * kDim + thread % kPacks * kPack;
  *reinterpret_cast<uint4*>((value ? args.values : args.keys) + to) =
      load_pack((value ? part.own_value : part.own_key) + thread % kPacks * kPack);
}

/// What a warp has, brought to the largest score of all warps.
template <int kDim, bool kWide>
__device__ __forceinline__ void leave_sums(const Sums<kDim, kWide>& sums,
                                           Shared<kDim, kWide>& shared) {
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const int group = static_cast<int>(threadIdx.x) % kLanes / 4;
  const int column = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int r = 0; r < Sums<kDim, kWide>::kRows; ++r) {
    const float weights = row_sum(sums.weights[r]);
    if (column == 0) shared.weights[warp][group + 8 * r] = {sums.largest[r], weights};
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < Sums<kDim, kWide>::kRows; ++r) {
    float most = -INFINITY;
    for (int w = 0; w < kWarps; ++w) most = fmaxf(most, shared.weights[w][group + 8 * r].x);
    const float factor = expf(sums.largest[r] - most);
#pragma unroll
    for (int block = 0; block < Sums<kDim, kWide>::kBlocks; ++block)
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int e = 0; e < kPack; e += 4) {
          float own[4];
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            const float(&d)[4] = sums.d[block][e + k];
            own[k] = factor * (kWide ? d[2 * r + i] : d[i] + d[2 + i]);
          }
          const int p = (8 * block + 2 * column + i) * kPack + e;
          *reinterpret_cast<float4*>(&shared.sums[warp][group + 8 * r][p]) = {own[0], own[1],
                                                                              own[2], own[3]};
        }
  }
  __syncthreads();
}

/// The warps' sums, added in their order, to the workspace.
template <int kDim, bool kWide>
__device__ __forceinline__ void store(const Attention<Bf16>& args, std::int64_t row, int heads,
                                      const Shared<kDim, kWide>& shared) {
  const std::int64_t apart = static_cast<std::int64_t>(gridDim.y) * (kDim + 2);
  float* const result = args.workspace + row * apart + blockIdx.y * std::int64_t{kDim + 2};
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < heads * kDim; i += kThreads) {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum += shared.sums[w][i / kDim][i % kDim];
    result[i / kDim * apart + i % kDim] = sum;
  }
  if (thread >= heads) return;
  float most = -INFINITY, weights = 0;
  for (int w = 0; w < kWarps; ++w) most = fmaxf(most, shared.weights[w][thread].x);
  for (int w = 0; w < kWarps; ++w)
    weights = fmaf(expf(shared.weights[w][thread].x - most), shared.weights[w][thread].y, weights);
  result[thread * apart + kDim] = most;
  result[thread * apart + kDim + 1] = weights;
}

template <int kDim, bool kWide>
__global__ void __launch_bounds__(kThreads, blocks_at_once(kDim))
    mma_parts_kernel(const Attention<Bf16> args) {
  constexpr int kHeads = Shared<kDim, kWide>::kHeads, kStride = kWarps * kChunk;
  constexpr bool kAhead = looks_ahead(kDim);
  extern __shared__ uint4 memory[];
  auto& shared = *reinterpret_cast<Shared<kDim, kWide>*>(memory);
  const int heads = args.heads / args.kv_heads, shares = (heads + kHeads - 1) / kHeads;
  const int share = static_cast<int>(blockIdx.x) % shares;
  const std::int64_t cache = blockIdx.x / shares, b = cache / args.kv_heads;
  const int kv_head = static_cast<int>(cache % args.kv_heads);
  const Bf16* of_token = args.qkv + b * (args.heads + 2 * args.kv_heads) * kDim;
  const Part part = part_of<kDim, kHeads>(args, of_token, cache, kv_head, share);
  hopper::griddepcontrol_launch_dependents();
  if (part.last < 0) return;
  Chunk<kDim> chunk;
  int at = static_cast<int>(threadIdx.x) / kLanes * kChunk;
  if (kAhead && at <= part.last) {
    load_keys(part, at, chunk);
    load_values(part, at, chunk);
  }
  if (share == 0 && part.own >= 0) append<kDim>(args, part);
  const int head = kv_head * heads + share * kHeads;
  for (int i = static_cast<int>(threadIdx.x); i < kHeads * kDim / kPack; i += kThreads) {
    const int row = i / (kDim / kPack), p = i % (kDim / kPack) * kPack;
    *reinterpret_cast<uint4*>(&shared.q[row][p]) =
        row < part.heads ? load_pack(of_token + (head + row) * kDim + p) : uint4{0, 0, 0, 0};
  }
  __syncthreads();
  Sums<kDim, kWide> sums;
  sums.clear();
#pragma unroll 1
  for (; at <= part.last; at += kStride) {
    const bool more = kAhead && at + kStride <= part.last;
    float scores[2][4];
    asm volatile("" ::: "memory");  // queries are read in each turn
    if (!kAhead) load_keys(part, at, chunk);
    make_scores<kDim, kWide>(shared.q, chunk, args.scale, part.last - at, scores);
    if (more) load_keys(part, at + kStride, chunk);
    if (!kAhead) load_values(part, at, chunk);
    sums.soften(scores);
    sums.add(scores, chunk);
    if (more) load_values(part, at + kStride, chunk);
  }
  leave_sums(sums, shared);
  store(args, b * args.heads + head, part.heads, shared);
}

template <int kDim, bool kWide>
int launch_parts(const Attention<Bf16>& args, cudaStream_t stream) {
  constexpr int kHeads = Shared<kDim, kWide>::kHeads;
  constexpr auto kKernel = mma_parts_kernel<kDim, kWide>;
  constexpr int kBytes = sizeof(Shared<kDim, kWide>);
  static const cudaError_t kReady =
      cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (kReady != cudaSuccess) return kReady;
  const int shares = (args.heads / args.kv_heads + kHeads - 1) / kHeads;
  const dim3 grid(static_cast<unsigned>(args.sequences * args.kv_heads * shares),
                  static_cast<unsigned>(parts(args.window)));
  kKernel<<<grid, kThreads, kBytes, stream>>>(args);
  return cudaGetLastError();
}

template <int kDim>
int launch_parts(const Attention<Bf16>& args, cudaStream_t stream) {
  return args.heads / args.kv_heads > 8 ? launch_parts<kDim, true>(args, stream)
                                        : launch_parts<kDim, false>(args, stream);
}

}  // namespace

bool has_mma(const Attention<Bf16>& args) {
  return (args.head_dim == 64 || args.head_dim == 128 || args.head_dim == 256) &&
         device::whole_packs<Bf16>({args.head_dim}, {args.qkv, args.keys, args.values});
}

int launch_mma_parts(const Attention<Bf16>& args, void* handle) {
  const auto stream = static_cast<cudaStream_t>(handle);
  if (args.head_dim == 64) return launch_parts<64>(args, stream);
  return args.head_dim == 128 ? launch_parts<128>(args, stream) : launch_parts<256>(args, stream);
}

}  // namespace stowage::kernels::decode
