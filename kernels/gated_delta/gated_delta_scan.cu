// The walks over chunks of the gated delta rule on warp-group products: scan() and adjoint() of
// gated_delta_chunk.hpp for bf16 storage and heads of 128.
//
// A block has a head and 64 columns of V: a warpgroup computes, a warp loads the operands of chunks
// ahead. All products are transposed: columns of V are the rows of an accumulator, so a result is
// the next product's A operand as it lies in registers, and nothing passes between warps.
// S (64 x 128) is fp32 in registers, rounded to bf16 where it is an operand. Norms and decays weigh
// tokens: they are factors of columns of accumulators, and operands are the bf16 of memory.
// What the backward keeps is made with two bf16 for R = diag(beta) (V - diag(a) K S^T): gradients
// of decays sum what its rounding leaves. The walk back takes longer still.
// Limits: latency of the chain of three products of a chunk; 64 columns a block use 2 Hv
// multiprocessors.

#include "kernels/gated_delta/gated_delta_launches.cuh"
#include "kernels/gated_delta/gated_delta_tiles.cuh"
#include "kernels/hopper/griddepcontrol.cuh"

namespace stowage::kernels::gated_delta {
namespace {

constexpr int kStages = 3;
constexpr int kThreads = kGroup + 32;

/// A chunk's operands in shared memory; v is dy in the adjoint.
struct Stage {
  static constexpr int kK = 0, kQ = kK + kKeyBytes, kInverse = kQ + kKeyBytes,
                       kScores = kInverse + kTileBytes, kV = kScores + kTileBytes,
                       kFactor = kV + kTileBytes;
  static constexpr int kBytes = (kFactor + kWalkBytes + 1023) / 1024 * 1024;
};

struct Shared {
  Mbarrier full[kStages], empty[kStages];
};
constexpr int kRooms = kStages * Stage::kBytes;
constexpr int kTokenRooms = kRooms + 4 * kStateRoom;
constexpr int kBarriers = kTokenRooms + 4 * kTokenRoom;
constexpr int kSharedBytes = kBarriers + static_cast<int>(sizeof(Shared));

extern __shared__ __align__(1024) std::byte shared_bytes[];

/// Loads a chunk. @param values the map of v or dy and the block's first column, or null
template <bool kQueries>
__device__ __forceinline__ void load_chunk(const Chunked& c, int chunk, int head,
                                           const CUtensorMap* qkv, const CUtensorMap* values,
                                           int column, std::byte* stage, Mbarrier* full) {
  const Arrays<Bf16, float>& p = c.arrays;
  const int token = chunk * kC, key = p.key_head(head) * kWide;
  const std::int64_t tile = p.at(chunk, head) * kC * kC;
  mbarrier_arrive_expect_tx(full, (kQueries ? 2 : 1) * (kKeyBytes + kTileBytes) + kWalkBytes +
                                      (values != nullptr ? kTileBytes : 0));
  load_wide(stage + Stage::kK, qkv, full, static_cast<int>(p.keys()) + key, token);
  bulk_load(stage + Stage::kFactor, c.factors_of(chunk, head), kWalkBytes, full);
  if (values != nullptr) bulk_load_2d(stage + Stage::kV, values, full, column, token);
  bulk_load(stage + Stage::kInverse, c.inverse + tile, kTileBytes, full);
  if (!kQueries) return;
  load_wide(stage + Stage::kQ, qkv, full, key, token);
  bulk_load(stage + Stage::kScores, c.scores + tile, kTileBytes, full);
}

__device__ __forceinline__ Shared& begin_block() {
  auto& shared = *reinterpret_cast<Shared*>(shared_bytes + kBarriers);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      mbarrier_init(&shared.full[stage], 1);
      mbarrier_init(&shared.empty[stage], kGroup);
    }
    mbarrier_init_fence();
  }
  __syncthreads();
  return shared;
}

/// The warp that loads: `load(i, stage, its barrier)` of all chunks, once a stage is empty.
template <class Load>
__device__ __forceinline__ void load_chunks(Shared& shared, int chunks, const Load& load) {
  if (!elect_one()) return;
  for (int i = 0; i < chunks; ++i) {
    const int stage = i % kStages;
    mbarrier_wait(&shared.empty[stage], (i / kStages & 1) ^ 1);
    load(i, shared_bytes + stage * Stage::kBytes, &shared.full[stage]);
  }
}

/// The columns [64 part, ..) of V of a head, and behind those of V the rows of the identity.
template <bool kOutputs, bool kKeep>
__device__ __forceinline__ void scan(const Chunked& c, int head, int part, const CUtensorMap& qkv,
                                     Shared& shared) {
  const Arrays<Bf16, float>& p = c.arrays;
  const int parts = p.value_dim / kPart, chunks = p.chunks();
  const bool values = part < parts;
  const int first = (values ? part : part - parts) * kPart;
  if (threadIdx.x >= kGroup) {
    const int column = static_cast<int>(2 * p.keys()) + head * p.value_dim + first;
    load_chunks(shared, chunks, [&](int chunk, std::byte* stage, Mbarrier* full) {
      load_chunk<kOutputs>(c, chunk, head, &qkv, values ? &qkv : nullptr, column, stage, full);
    });
    return;
  }
  const Place at;
  std::byte* const state_room = shared_bytes + kRooms + at.warp * kStateRoom;
  std::byte* const token_room = shared_bytes + kTokenRooms + at.warp * kTokenRoom;
  float s[kWide / 2];
  if (values && p.initial_state != nullptr) {
    load_matrix(
        s, p.initial_state + (static_cast<std::int64_t>(head) * p.value_dim + first) * kWide, at);
  } else {
#pragma unroll
    for (int i = 0; i < kWide / 2; ++i) {
      const int row = first + at.row + (i & 2) * 4, column = 2 * (i & ~3) + at.column + (i & 1);
      s[i] = !values && row == column ? 1 : 0;
    }
  }
  std::uint32_t state[kWide / 4];
  to_operand(state, s);
  std::uint32_t u[kC / 4];  // U, then Y, which is stored while the next chunk's products run
  const auto store_y = [&](int chunk, int count) {
    store_rows(p.y + (static_cast<std::int64_t>(chunk) * kC * p.value_heads + head) * p.value_dim +
                   first + 16 * at.warp,
               static_cast<std::int64_t>(p.value_heads) * p.value_dim, count, u, token_room, at);
  };
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const int stage = chunk % kStages;
    const std::byte* const bytes = shared_bytes + stage * Stage::kBytes;
    const std::uint32_t tiles = shared_address(bytes);
    const auto* factors = reinterpret_cast<const float*>(bytes + Stage::kFactor);
    const auto factor = [&](Factor which, int j) { return pair_of(factors + which * kC, j, at); };
    mbarrier_wait(&shared.full[stage], chunk / kStages & 1);
    const float through = factors[kThrough * kC];
#pragma unroll
    for (float& value : s) value *= through;
    float x[kC / 2], o[kC / 2];
    issue_rows<kC, 0, 8>(x, state, tiles + Stage::kK, false);
    if (kOutputs) {
      issue_rows<kC, 0, 4>(o, state, tiles + Stage::kQ, false);
      if (chunk > 0) store_y(chunk - 1, kC);
    }
    if (kKeep) store_state(c.states + p.state(chunk, head) + first * kWide, state, state_room, at);
    std::uint32_t r[kC / 4] = {};  // V, then R
    std::uint32_t rest[kC / 4];    // what the bf16 of R lack
    if (values) load_tokens(r, tiles + Stage::kV, at);
    wgmma_wait_group<kOutputs ? 1 : 0>();
    pin_registers(x);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 beta = factor(kStrength, j), corrects = factor(kCorrects, j);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        std::uint32_t& v = r[2 * j + half];
        const float low = beta.x * unpack_low(v) - corrects.x * x[4 * j + 2 * half];
        const float high = beta.y * unpack_high(v) - corrects.y * x[4 * j + 2 * half + 1];
        v = pack_bf16(low, high);
        if (kKeep) rest[2 * j + half] = pack_bf16(low - unpack_low(v), high - unpack_high(v));
      }
    }
    issue_columns<kC, 4>(x, r, tiles + Stage::kInverse, false);
    if (kKeep) issue_columns<kC, 4>(x, rest, tiles + Stage::kInverse, true);
    if (kOutputs) issue_rows<kC, 4, 8>(o, state, tiles + Stage::kQ, true);
    wgmma_wait_group<kOutputs ? 1 : 0>();
    pin_registers(x);
    keep_operand(r);
    if (kKeep) keep_operand(rest);
    to_operand(u, x);
    to_operand(r, x, [&](int j) { return factor(kWrites, j); });
    issue_columns<kWide, 4>(s, r, tiles + Stage::kK, true);
    if (kKeep) store_tile(c.u + p.rows(chunk, head) + first * kC, u, token_room, at);
    if (kOutputs) {
      wgmma_wait_group<1>();
      pin_registers(o);
      scale_columns(o, [&](int j) { return factor(kReads, j); });
      issue_rows<kC, 0, 4>(o, u, tiles + Stage::kScores, true);
    }
    wgmma_wait_group<kOutputs ? 1 : 0>();
    pin_registers(s);
    keep_operand(state);
    keep_operand(r);
    to_operand(state, s);
    if (kOutputs) {
      wgmma_wait_group<0>();
      pin_registers(o);
      keep_operand(u);
      to_operand(u, o);
    }
    mbarrier_arrive(&shared.empty[stage]);
  }
  if (kOutputs && chunks > 0) store_y(chunks - 1, p.count(chunks - 1));
  float* const to = values ? p.final_state : p.transition;
  if (to != nullptr)
    store_matrix(
        to + (static_cast<std::int64_t>(head) * (values ? p.value_dim : kWide) + first) * kWide, s,
        at);
}

/// The gradients of S and V of 64 columns of V of a head, from the last chunk to the first.
template <bool kKeep>
__device__ __forceinline__ void adjoint(const Chunked& c, int head, int part,
                                        const CUtensorMap& qkv, const CUtensorMap& dy_rows,
                                        Shared& shared) {
  const Arrays<Bf16, float>& p = c.arrays;
  const int first = part * kPart;
  const int chunks = p.chunks();
  const std::int64_t column = static_cast<std::int64_t>(head) * p.value_dim + first;
  if (threadIdx.x >= kGroup) {
    load_chunks(shared, chunks, [&](int i, std::byte* stage, Mbarrier* full) {
      load_chunk<true>(c, chunks - 1 - i, head, &qkv, &dy_rows, static_cast<int>(column), stage,
                       full);
    });
    return;
  }
  const Place at;
  std::byte* const state_room = shared_bytes + kRooms + at.warp * kStateRoom;
  std::byte* const token_room = shared_bytes + kTokenRooms + at.warp * kTokenRoom;
  float s[kWide / 2];
  if (p.dfinal_state != nullptr) {
    load_matrix(s, p.dfinal_state + column * kWide, at);
  } else {
#pragma unroll
    for (float& value : s) value = 0;
  }
  std::uint32_t state[kWide / 4];
  to_operand(state, s);
#pragma unroll 1
  for (int i = 0; i < chunks; ++i) {
    const int chunk = chunks - 1 - i, stage = i % kStages, count = p.count(chunk);
    const std::byte* const bytes = shared_bytes + stage * Stage::kBytes;
    const std::uint32_t tiles = shared_address(bytes);
    const auto* factors = reinterpret_cast<const float*>(bytes + Stage::kFactor);
    const auto factor = [&](Factor which, int j) { return pair_of(factors + which * kC, j, at); };
    const std::int64_t token = static_cast<std::int64_t>(chunk) * kC;
    mbarrier_wait(&shared.full[stage], i / kStages & 1);
    const float through = factors[kThrough * kC];
#pragma unroll
    for (float& value : s) value *= through;
    float x[kC / 2], z[kC / 2];
    issue_rows<kC, 0, 8>(x, state, tiles + Stage::kK, false);
    std::uint32_t dy[kC / 4], a[kC / 4];
    load_tokens(dy, tiles + Stage::kV, at);
    issue_columns<kC, 4>(z, dy, tiles + Stage::kScores, false);
    if (kKeep) store_state(c.dstates + p.state(chunk, head) + first * kWide, state, state_room, at);
    wgmma_wait_group<0>();
    pin_registers(x);
    pin_registers(z);
    keep_operand(state);
    keep_operand(dy);
    scale_columns(x, [&](int j) { return factor(kWrites, j); });
#pragma unroll
    for (int e = 0; e < kC / 2; ++e) x[e] += z[e];
    to_operand(a, x);
    issue_rows<kC, 0, 4>(x, a, tiles + Stage::kInverse, false);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 f = factor(kReads, j);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        std::uint32_t& v = dy[2 * j + half];
        v = pack_bf16(f.x * unpack_low(v), f.y * unpack_high(v));
      }
    }
    issue_columns<kWide, 4>(s, dy, tiles + Stage::kQ, true);
    wgmma_wait_group<1>();
    pin_registers(x);
    keep_operand(a);
    to_operand(a, x, [&](int j) {
      const float2 corrects = factor(kCorrects, j);
      return make_float2(-corrects.x, -corrects.y);
    });
    issue_columns<kWide, 4>(s, a, tiles + Stage::kK, true);
    if (kKeep) {
      std::uint32_t w[kC / 4];
      to_operand(w, x);
      store_tile(c.w + p.rows(chunk, head) + first * kC, w, token_room, at);
      to_operand(w, x, [&](int j) { return factor(kStrength, j); });
      store_rows(p.dqkv + token * p.dqkv_stride + 2 * p.keys() + column + 16 * at.warp,
                 p.dqkv_stride, count, w, token_room, at);
    }
    wgmma_wait_group<0>();
    pin_registers(s);
    keep_operand(dy);
    keep_operand(a);
    mbarrier_arrive(&shared.empty[stage]);
    to_operand(state, s);
  }
  if (p.dinitial_state != nullptr) store_matrix(p.dinitial_state + column * kWide, s, at);
}

/// Blocks [0, adjoints) of a head walk back, the others forward: neither needs the other.
template <bool kOutputs, bool kKeep, bool kAdjoint>
__global__ void __launch_bounds__(kThreads, 1)
    walk_kernel(const Chunked c, const int adjoints, const int first_part,
                const __grid_constant__ CUtensorMap qkv, const __grid_constant__ CUtensorMap dy) {
  Shared& shared = begin_block();
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  const int head = static_cast<int>(blockIdx.y), block = static_cast<int>(blockIdx.x);
  if (kAdjoint && block < adjoints)
    adjoint<kKeep>(c, head, block, qkv, dy, shared);
  else
    scan<kOutputs, kKeep>(c, head, first_part + block - adjoints, qkv, shared);
}

}  // namespace

int launch_walks(const Chunked& c, int first, int count, void* stream) {
  const Arrays<Bf16, float>& p = c.arrays;
  const int adjoints = p.dy != nullptr ? p.value_dim / kPart : 0;
  const CUtensorMap qkv = qkv_map(p), dy = adjoints > 0 ? dy_map(p) : qkv;
  const auto go = [&](auto* kernel) {
    return launch_dependent_blocks(kernel, adjoints + count, p.value_heads, kThreads, kSharedBytes,
                                   stream, c, adjoints, first, qkv, dy);
  };
  if (p.y != nullptr) return go(walk_kernel<true, false, false>);
  if (adjoints == 0) return go(walk_kernel<false, false, false>);
  return c.states != nullptr ? go(walk_kernel<false, true, true>)
                             : go(walk_kernel<false, false, true>);
}

}  // namespace stowage::kernels::gated_delta
