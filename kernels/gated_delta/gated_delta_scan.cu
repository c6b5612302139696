// The walks over chunks of the gated delta rule on warp-group products: scan() and adjoint() of
// gated_delta_chunk.hpp for bf16 storage and heads of 128.
//
// A block has a head and 64 columns of V: one warpgroup computes, another copies the operands of
// chunks ahead. All products are transposed: columns of V are the rows of an accumulator, so a
// result is the next product's A operand as it lies in registers, and nothing passes between warps.
// S (64 x 128) is fp32 in registers, rounded to bf16 where it is an operand. Norms and decays weigh
// tokens: they are factors of columns of accumulators, and operands are the bf16 of memory.
// Limits: latency of the chain of three products of a chunk; 64 columns a block use 2 Hv
// multiprocessors.

#include "kernels/gated_delta/gated_delta_launches.cuh"
#include "kernels/gated_delta/gated_delta_tiles.cuh"

namespace stowage::kernels::gated_delta {
namespace {

constexpr int kStages = 3;
constexpr int kThreads = 2 * kGroup;

/// A chunk's operands in shared memory; v is dy in the adjoint.
struct Stage {
  static constexpr int kK = 0, kQ = kK + kKeyBytes, kInverse = kQ + kKeyBytes,
                       kScores = kInverse + kTileBytes, kV = kScores + kTileBytes,
                       kField = kV + kTileBytes;
  static constexpr int kBytes = (kField + kFields * kC * 4 + 1023) / 1024 * 1024;
};

struct Shared {
  Mbarrier full[kStages], empty[kStages];
};
constexpr int kRooms = kStages * Stage::kBytes;
constexpr int kTokenRooms = kRooms + 4 * kStateRoom;
constexpr int kBarriers = kTokenRooms + 4 * kTokenRoom;
constexpr int kSharedBytes = kBarriers + static_cast<int>(sizeof(Shared));

extern __shared__ __align__(1024) std::byte shared_bytes[];

/// The copies of a chunk. @param v of the block's columns, or null: zeros
template <bool kQueries>
__device__ __forceinline__ void copy_chunk(const Chunked& c, int chunk, int head, const Bf16* v,
                                           std::int64_t v_stride, std::byte* stage, int thread) {
  const Arrays<Bf16, float>& p = c.arrays;
  const int count = p.count(chunk);
  const std::int64_t token = static_cast<std::int64_t>(chunk) * kC;
  const std::uint32_t to = shared_address(stage);
  const Bf16* q =
      p.qkv + token * p.qkv_stride + static_cast<std::int64_t>(p.key_head(head)) * kWide;
  const std::int64_t tile = p.at(chunk, head) * kC * kC;
  copy_tiles<2, kGroup>(to + Stage::kK, q + p.keys(), p.qkv_stride, count, thread);
  copy_tiles<1, kGroup>(to + Stage::kInverse, c.inverse + tile, kC, kC, thread);
  if (kQueries) {
    copy_tiles<2, kGroup>(to + Stage::kQ, q, p.qkv_stride, count, thread);
    copy_tiles<1, kGroup>(to + Stage::kScores, c.scores + tile, kC, kC, thread);
  }
  copy_tiles<1, kGroup>(to + Stage::kV, v != nullptr ? v + token * v_stride : p.qkv, v_stride,
                        v != nullptr ? count : 0, thread);
  copy_fields<kGroup>(reinterpret_cast<float*>(stage + Stage::kField), p.field(chunk, head, kLog),
                      thread);
}

__device__ __forceinline__ Shared& begin_block() {
  auto& shared = *reinterpret_cast<Shared*>(shared_bytes + kBarriers);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      mbarrier_init(&shared.full[stage], kGroup);
      mbarrier_init(&shared.empty[stage], kGroup);
    }
    mbarrier_init_fence();
  }
  __syncthreads();
  return shared;
}

/// The warpgroup that copies: chunk `of(i)` into stage i % kStages, one chunk ahead of its arrival.
template <class Copy>
__device__ __forceinline__ void copy_chunks(Shared& shared, int chunks, const Copy& copy) {
  const auto arrive = [&](int i) {
    fence_proxy_async();
    mbarrier_arrive(&shared.full[i % kStages]);
  };
  for (int i = 0; i < chunks; ++i) {
    const int stage = i % kStages;
    mbarrier_wait(&shared.empty[stage], (i / kStages & 1) ^ 1);
    copy(i, shared_bytes + stage * Stage::kBytes);
    async_copy_commit();
    if (i == 0) continue;
    async_copy_wait<1>();
    arrive(i - 1);
  }
  async_copy_wait<0>();
  if (chunks > 0) arrive(chunks - 1);
}

/// The columns [64 part, ..) of V of a head, and behind those of V the rows of the identity.
template <bool kOutputs, bool kKeep>
__global__ void __launch_bounds__(kThreads, 1) scan_kernel(const Chunked c, const int first_part) {
  const Arrays<Bf16, float>& p = c.arrays;
  Shared& shared = begin_block();
  const int head = static_cast<int>(blockIdx.y), part = first_part + static_cast<int>(blockIdx.x);
  const int parts = p.value_dim / kPart, chunks = p.chunks();
  const bool values = part < parts;
  const int first = (values ? part : part - parts) * kPart;
  if (threadIdx.x >= kGroup) {
    const Bf16* v =
        values ? p.qkv + 2 * p.keys() + static_cast<std::int64_t>(head) * p.value_dim + first
               : nullptr;
    copy_chunks(shared, chunks, [&](int chunk, std::byte* stage) {
      copy_chunk<kOutputs>(c, chunk, head, v, p.qkv_stride, stage,
                           static_cast<int>(threadIdx.x) - kGroup);
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
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const int stage = chunk % kStages, count = p.count(chunk);
    const std::byte* const bytes = shared_bytes + stage * Stage::kBytes;
    const std::uint32_t tiles = shared_address(bytes);
    const auto* fields = reinterpret_cast<const float*>(bytes + Stage::kField);
    const auto product_of = [&](Field one, Field other, int j) {
      const float2 a = pair_of(fields + one * kC, j, at), b = pair_of(fields + other * kC, j, at);
      return make_float2(a.x * b.x, a.y * b.y);
    };
    const std::int64_t token = static_cast<std::int64_t>(chunk) * kC;
    mbarrier_wait(&shared.full[stage], chunk / kStages & 1);
    const float through = fields[kEnter * kC + kC - 1];
#pragma unroll
    for (float& value : s) value *= through;
    float x[kC / 2], o[kC / 2];
    issue_rows<kC, 8>(x, state, tiles + Stage::kK, false);
    if (kOutputs) issue_rows<kC, 8>(o, state, tiles + Stage::kQ, false);
    if (kKeep)
      store_state(c.states + p.state(chunk, head) + (first + 16 * at.warp) * kWide, state,
                  state_room, at);
    std::uint32_t r[kC / 4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      std::uint32_t v[4];
      load_transposed(v, tiles + Stage::kV, k, at);
#pragma unroll
      for (int i = 0; i < 4; ++i) r[4 * k + i] = v[i];
    }
    wgmma_wait_group<kOutputs ? 1 : 0>();
    pin_registers(x);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 beta = pair_of(fields + kBeta * kC, j, at), f = product_of(kEnter, kKNorm, j);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        std::uint32_t& v = r[2 * j + half];
        v = pack_bf16(beta.x * (unpack_low(v) - f.x * x[4 * j + 2 * half]),
                      beta.y * (unpack_high(v) - f.y * x[4 * j + 2 * half + 1]));
      }
    }
    issue_columns<kC, 4>(x, r, tiles + Stage::kInverse, false);
    wgmma_wait_group<0>();
    pin_registers(x);
    if (kOutputs) pin_registers(o);
    keep_operand(state);
    keep_operand(r);
    std::uint32_t u[kC / 4];
    to_operand(u, x);
    if (kOutputs) {
      scale_columns(o, [&](int j) { return product_of(kEnter, kQNorm, j); });
      issue_rows<kC, 4>(o, u, tiles + Stage::kScores, true);
    }
    to_operand(r, x, [&](int j) { return product_of(kLeave, kKNorm, j); });
    issue_columns<kWide, 4>(s, r, tiles + Stage::kK, true);
    if (kKeep)
      store_tokens(c.u + p.rows(chunk, head) + first + 16 * at.warp, p.value_dim, kC, u, token_room,
                   at);
    if (kOutputs) {
      wgmma_wait_group<1>();
      pin_registers(o);
      keep_operand(u);
      to_operand(u, o);
      store_tokens(p.y + (token * p.value_heads + head) * p.value_dim + first + 16 * at.warp,
                   static_cast<std::int64_t>(p.value_heads) * p.value_dim, count, u, token_room,
                   at);
    }
    wgmma_wait_group<0>();
    pin_registers(s);
    keep_operand(r);
    mbarrier_arrive(&shared.empty[stage]);
    to_operand(state, s);
  }
  float* const to = values ? p.final_state : p.transition;
  if (to != nullptr)
    store_matrix(
        to + (static_cast<std::int64_t>(head) * (values ? p.value_dim : kWide) + first) * kWide, s,
        at);
}

/// The gradients of S and V of 64 columns of V of a head, from the last chunk to the first.
template <bool kKeep>
__global__ void __launch_bounds__(kThreads, 1) adjoint_kernel(const Chunked c) {
  const Arrays<Bf16, float>& p = c.arrays;
  Shared& shared = begin_block();
  const int head = static_cast<int>(blockIdx.y), first = static_cast<int>(blockIdx.x) * kPart;
  const int chunks = p.chunks();
  const std::int64_t stride = static_cast<std::int64_t>(p.value_heads) * p.value_dim;
  const std::int64_t column = static_cast<std::int64_t>(head) * p.value_dim + first;
  if (threadIdx.x >= kGroup) {
    copy_chunks(shared, chunks, [&](int i, std::byte* stage) {
      copy_chunk<true>(c, chunks - 1 - i, head, p.dy + column, stride, stage,
                       static_cast<int>(threadIdx.x) - kGroup);
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
    const auto* fields = reinterpret_cast<const float*>(bytes + Stage::kField);
    const auto product_of = [&](Field one, Field other, int j) {
      const float2 a = pair_of(fields + one * kC, j, at), b = pair_of(fields + other * kC, j, at);
      return make_float2(a.x * b.x, a.y * b.y);
    };
    const std::int64_t token = static_cast<std::int64_t>(chunk) * kC;
    mbarrier_wait(&shared.full[stage], i / kStages & 1);
    const float through = fields[kEnter * kC + kC - 1];
#pragma unroll
    for (float& value : s) value *= through;
    float x[kC / 2];
    issue_rows<kC, 8>(x, state, tiles + Stage::kK, false);
    std::uint32_t dy[kC / 4], a[kC / 4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      std::uint32_t v[4];
      load_transposed(v, tiles + Stage::kV, k, at);
#pragma unroll
      for (int e = 0; e < 4; ++e) dy[4 * k + e] = v[e];
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 f = product_of(kEnter, kQNorm, j);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::uint32_t v = dy[2 * j + half];
        a[2 * j + half] = pack_bf16(f.x * unpack_low(v), f.y * unpack_high(v));
      }
    }
    issue_columns<kWide, 4>(s, a, tiles + Stage::kQ, true);
    if (kKeep)
      store_state(c.dstates + p.state(chunk, head) + (first + 16 * at.warp) * kWide, state,
                  state_room, at);
    wgmma_wait_group<1>();
    pin_registers(x);
    keep_operand(state);
    scale_columns(x, [&](int j) { return product_of(kLeave, kKNorm, j); });
    issue_columns<kC, 4>(x, dy, tiles + Stage::kScores, true);
    wgmma_wait_group<0>();
    pin_registers(x);
    pin_registers(s);
    keep_operand(dy);
    keep_operand(a);
    to_operand(a, x);
    issue_rows<kC, 4>(x, a, tiles + Stage::kInverse, false);
    wgmma_wait_group<0>();
    pin_registers(x);
    keep_operand(a);
    to_operand(a, x, [&](int j) {
      const float2 f = product_of(kEnter, kKNorm, j), beta = pair_of(fields + kBeta * kC, j, at);
      return make_float2(-f.x * beta.x, -f.y * beta.y);
    });
    issue_columns<kWide, 4>(s, a, tiles + Stage::kK, true);
    if (kKeep) {
      to_operand(dy, x);
      store_tokens(c.w + p.rows(chunk, head) + first + 16 * at.warp, p.value_dim, kC, dy,
                   token_room, at);
      to_operand(dy, x, [&](int j) { return pair_of(fields + kBeta * kC, j, at); });
      store_tokens(p.dqkv + token * p.dqkv_stride + 2 * p.keys() + column + 16 * at.warp,
                   p.dqkv_stride, count, dy, token_room, at);
    }
    wgmma_wait_group<0>();
    pin_registers(s);
    keep_operand(a);
    mbarrier_arrive(&shared.empty[stage]);
    to_operand(state, s);
  }
  if (p.dinitial_state != nullptr) store_matrix(p.dinitial_state + column * kWide, s, at);
}

}  // namespace

int launch_scan(const Chunked& c, int first, int count, void* stream) {
  const Arrays<Bf16, float>& p = c.arrays;
  const auto go = [&](auto* kernel) {
    return launch_blocks(kernel, count, p.value_heads, kThreads, kSharedBytes, stream, c, first);
  };
  if (p.y != nullptr) return go(scan_kernel<true, false>);
  return c.states != nullptr ? go(scan_kernel<false, true>) : go(scan_kernel<false, false>);
}

int launch_adjoint(const Chunked& c, void* stream) {
  const Arrays<Bf16, float>& p = c.arrays;
  const auto go = [&](auto* kernel) {
    return launch_blocks(kernel, p.value_dim / kPart, p.value_heads, kThreads, kSharedBytes, stream,
                         c);
  };
  return c.dstates != nullptr ? go(adjoint_kernel<true>) : go(adjoint_kernel<false>);
}

}  // namespace stowage::kernels::gated_delta
