// Forward of the scan: one pass over X, B, C per segment, the state never leaves the chip.
//
// For a chunk of 64 tokens and one unit (64 columns of X), with the state S before it:
//   CB = C B^T, masked to i >= j of one document
//   Y  = 2^(a_i) (C S^T) + (CB . 2^(a_i - a_j) dt_j) X + D X
//   S  = 2^(a_63) S + (w_j X_j)^T B
// (Mamba-2, arXiv 2405.21060, section 6; factors from ssd_prepare.cu, none overflows). S is fp32 in
// registers, as accumulators; its bf16 copy in shared memory is the operand of C S^T. The products
// with CB and with X^T take A from registers. bf16 operands, fp32 sums, one rounding of Y.
//
// A block: four units of a group and four warpgroups. Two hold the states of two units each, 128
// registers a thread, and leave bf16 copies; two make the outputs of two units each from CB and the
// copies. So the recurrence and the quadratic form of different chunks overlap, with four warps a
// scheduler. Two threads issue the bulk loads of a two-stage ring. Chunk 64 because the
// recurrence needs fewer flops than a longer quadratic form (57 k against 82 k a token and unit at
// 128) and CB fits in registers. Segments of a sequence run at the same time, from the states that
// ssd_enter.cu left.
// Units that cut heads of 80 columns: a block has the factors of four heads, a warp of the states
// takes those of its strip. The outputs of a unit of two heads have two operands CB: one in
// registers, one in the staging of the warp's Y. Their products with X are those of a warp, which
// can take one operand for some columns and the other for the rest. Those of a warpgroup on a part
// of the accumulator would be serialized.
// w X is two bf16 for the second half of a chunk, where weights are large: with one for all, y's
// errors are above those of kernels with longer chunks, which round fewer tokens twice.
// Cost per token and unit: 57 k flops, 128 bytes in, 128 out; B and C 4 N bytes a token and block.
// Deterministic.
// Limits: two chains of about equal length, most of whose time is latency (waits for products,
// stages and each other): CB, exponentials, products and store, 96 registers a thread; and the
// update of two states, 160. Two stages are all that fits, and loads are waited for. A loading
// thread is part of its warpgroup's chain: with a copy and a division a unit it took a fifth of its
// warp's time (sampled), hence one copy of all units' factors, and a thread in each warpgroup.

#include "kernels/hopper/mbarrier.cuh"
#include "kernels/hopper/setmaxnreg.cuh"
#include "kernels/ssd/ssd_decay.cuh"

namespace stowage::kernels::ssd {
namespace {

constexpr int kPairs = 2;      ///< warpgroups of each kind
constexpr int kPairUnits = 2;  ///< units of one of them
constexpr int kUnits = kPairs * kPairUnits;
static_assert(kUnits == kScanUnits);
constexpr int kStages = 2;
constexpr int kThreads = 2 * kPairs * 128;
constexpr int kFactorFloats = kForwardRecordFloats;  ///< rows shift, weight, in, log
constexpr int kStagingBytes = 2048;                  ///< a warp's 16 rows of Y

struct Barriers {
  Mbarrier full[kStages], empty[kStages];
  Mbarrier copied[kUnits], read[kUnits];  ///< a state's bf16 copy is there; has been read
  float skips[kUnits];                    ///< D of each head
};

template <int kState>
struct Layout {
  static constexpr int kStateTiles = kState / 64;
  static constexpr int kStageTiles = kUnits + 2 * kStateTiles;
  static constexpr int kStateOffset = kStages * kStageTiles * kTileBytes;
  static constexpr int kStagingOffset = kStateOffset + kUnits * kStateTiles * kTileBytes;
  static constexpr int kFactorOffset = kStagingOffset + kPairs * 4 * kStagingBytes;
  static constexpr int kSpanOffset =
      kFactorOffset + kStages * kUnits * kFactorFloats * static_cast<int>(sizeof(float));
  static constexpr int kBarrierOffset =
      kSpanOffset + kStages * kChunk * static_cast<int>(sizeof(Span));
  static constexpr int kBytes = kBarrierOffset + static_cast<int>(sizeof(Barriers));
  static constexpr int kSharedBytes =  ///< of a stage, B, C and spans
      2 * kStateTiles * kTileBytes + kChunk * static_cast<int>(sizeof(Span));
  static constexpr int kUnitBytes =  ///< X and factors
      kUnits * (kTileBytes + kFactorFloats * static_cast<int>(sizeof(float)));
};

struct Block {
  int segment, group, base, first_chunk, chunks;
  __device__ explicit Block(const Sizes& s) {
    const int sets = (s.group_units + kUnits - 1) / kUnits;
    segment = static_cast<int>(blockIdx.y);
    group = static_cast<int>(blockIdx.x) / sets;
    base = static_cast<int>(blockIdx.x) % sets * kUnits;  // within the group
    first_chunk = segment * s.segment_chunks;
    chunks = min(s.segment_chunks, s.chunks - first_chunk);
  }
  /// Unit v of the block; beyond the group's last one, that one again.
  __device__ int unit(const Sizes& s, int v) const {
    return group * s.group_units + min(base + v, s.group_units - 1);
  }
  __device__ bool valid(const Sizes& s, int v) const { return base + v < s.group_units; }
};

__device__ __forceinline__ int token_of(const Block& block, int i) {
  return (block.first_chunk + i) * kChunk;
}

/// Loads one half of chunk i of the block into its stage once the stage is empty: half 0 is B, C
/// and the spans, half 1 X and the factors. One thread of each output warpgroup, as what a thread
/// issues delays its warpgroup.
template <int kState, int kColumns>
__device__ void load_chunk(const ScanParameters& p, const Block& block, int half, int i,
                           std::byte* shared) {
  using L = Layout<kState>;
  if (i >= block.chunks) return;
  auto* barriers = reinterpret_cast<Barriers*>(shared + L::kBarrierOffset);
  const int stage = i % kStages;
  if (i >= kStages) mbarrier_wait(&barriers->empty[stage], (i / kStages - 1) % 2);
  Mbarrier* barrier = &barriers->full[stage];
  const std::int64_t chunk = block.first_chunk + i;
  const int token = static_cast<int>(chunk) * kChunk;
  std::byte* tiles = shared + stage * L::kStageTiles * kTileBytes;
  if (half == 0) {
    mbarrier_arrive_expect_tx(barrier, L::kSharedBytes);
    std::byte* c = tiles + kUnits * kTileBytes;
    const int column = block.group * kState;
    load_tiles(c, &p.bc, barrier, p.sizes.c_column + column, token);
    load_tiles(c + L::kStateTiles * kTileBytes, &p.bc, barrier, p.sizes.b_column + column, token);
    bulk_load(shared + L::kSpanOffset + stage * kChunk * sizeof(Span), p.spans + chunk * kChunk,
              kChunk * sizeof(Span), barrier);
    return;
  }
  mbarrier_arrive_expect_tx(barrier, L::kUnitBytes);
  load_tiles(tiles, &p.x, barrier, block.unit(p.sizes, 0) * kPart, token, CachePolicy::evict_first);
  auto* factors =
      reinterpret_cast<float*>(shared + L::kFactorOffset) + stage * kUnits * kFactorFloats;
  const float* records = p.records + chunk * p.sizes.heads * kFactorFloats;
  if constexpr (kColumns != kPart) {
    using Heads = CutHeads<kColumns>;
    const int first = Heads::at(p.sizes, block.group, block.base, 0);
    if (Heads::at(p.sizes, block.group, block.base, kUnits - 1) == first + kUnits - 1) {
      bulk_load(factors, records + first * kFactorFloats, kUnits * kFactorFloats * sizeof(float),
                barrier);
      return;
    }
#pragma unroll 1
    for (int v = 0; v < kUnits; ++v) {
      bulk_load(factors + v * kFactorFloats,
                records + Heads::at(p.sizes, block.group, block.base, v) * kFactorFloats,
                kFactorFloats * sizeof(float), barrier);
    }
    return;
  }
  if (p.sizes.parts == 1 && block.valid(p.sizes, kUnits - 1)) {  // neighbouring heads
    bulk_load(factors, records + block.unit(p.sizes, 0) * kFactorFloats,
              kUnits * kFactorFloats * sizeof(float), barrier);
    return;
  }
#pragma unroll 1
  for (int v = 0; v < kUnits; ++v) {
    bulk_load(factors + v * kFactorFloats,
              records + block.unit(p.sizes, v) / p.sizes.parts * kFactorFloats,
              kFactorFloats * sizeof(float), barrier);
  }
}

/// Issues y = C S^T from the bf16 copy of the state.
template <int kState>
__device__ __forceinline__ void issue_product(float (&y)[32], const std::byte* a,
                                              const std::byte* b) {
  const std::uint64_t da = k_major<Swizzle::b128>(a);
  const std::uint64_t db = k_major<Swizzle::b128>(b);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < kState / kKStep; ++k) {
    const std::uint32_t offset = (k / 4) * kTileBytes + (k % 4) * kKMajorStep;
    Wgmma<64>::ss<0, 0>(y, advance(da, offset), advance(db, offset), k > 0);
  }
  wgmma_commit_group();
}

/// Issues y += m X.
__device__ __forceinline__ void issue_inside(float (&y)[32], const std::uint32_t (&m)[16],
                                             const std::byte* x) {
  const std::uint64_t dx = mn_major<Swizzle::b128>(x, kTileBytes);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    Wgmma<64>::rs<1>(y, m[4 * k], m[4 * k + 1], m[4 * k + 2], m[4 * k + 3],
                     advance(dx, k * kMnMajorStep), 1);
  }
  wgmma_commit_group();
}

__device__ __forceinline__ void scale_rows(float (&y)[32], float row0, float row1) {
#pragma unroll
  for (int i = 0; i < 32; ++i) y[i] *= (i & 2) ? row1 : row0;
}

/// y + D x to global memory; skip(k): D of strip k.
__device__ __forceinline__ void write_y(const ScanParameters& p, float (&y)[32], const std::byte* x,
                                        int unit, const auto& skip, bool valid, int token,
                                        std::byte* staging, const Place& at) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    std::uint32_t pairs[4];
    load_rows(pairs, shared_address(x), k, at);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      y[8 * k + 2 * i] += skip(k) * unpack_low(pairs[i]);
      y[8 * k + 2 * i + 1] += skip(k) * unpack_high(pairs[i]);
    }
  }
  if (valid) send_rows(staging, y, &p.y, unit, token, at);
}

/// Leaves the bf16 copy of a state for the outputs of the next chunk.
template <int kState>
__device__ __forceinline__ void copy_state(const float (&s)[kState / 2], std::byte* tiles,
                                           Mbarrier* copied, const Place& at) {
  store_tiles<kState / 8>(shared_address(tiles), s, at);
  fence_proxy_async();
  __syncwarp();
  if (at.lane == 0) mbarrier_arrive(copied);
}

/// Scales the tokens 16 k .. 16 k + 15 of an operand by `factors`, to bf16, or to what that loses.
__device__ __forceinline__ void scale_tokens(std::uint32_t (&a)[4], bool rest, const float* factors,
                                             int k, const Place& at) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float2 f = *reinterpret_cast<const float2*>(factors + kKStep * k + 8 * half + at.column);
#pragma unroll
    for (int i = 2 * half; i < 2 * half + 2; ++i) {
      std::uint32_t lost;
      scale_pair(a[i], lost, f);
      if (rest) a[i] = lost;
    }
  }
}

/// Products of one update: the tokens 16 k .. 16 k + 15 of the chunk's first half once, those of
/// its second half, whose weights are the larger ones, as two bf16.
struct Update {
  static constexpr int kSteps = 6;
  static constexpr int tokens(int step) { return step < 2 ? step : 1 + step / 2; }
  static constexpr bool rest(int step) { return step > 2 && step % 2 != 0; }
};

/// s = 2^(a_63) s + (w X)^T B: 16 tokens at a time, as the states leave few registers. The next
/// ones' X is loaded while a product runs.
template <int kState>
__device__ __forceinline__ void update_state(float (&s)[kState / 2], const std::byte* x,
                                             const std::byte* b, const float* factors,
                                             const Place& at) {
  const float decay = factors[kRowIn * kChunk + kChunk - 1];
#pragma unroll
  for (float& value : s) value *= decay;
  const std::uint64_t db = mn_major<Swizzle::b128>(b, kTileBytes);
  std::uint32_t a[2][4];
  const auto load = [&](int step) {
    load_transposed(a[step % 2], shared_address(x), Update::tokens(step), at);
  };
  load(0);
#pragma unroll
  for (int step = 0; step < Update::kSteps; ++step) {
    std::uint32_t(&m)[4] = a[step % 2];
    scale_tokens(m, Update::rest(step), factors + kRowWeight * kChunk, Update::tokens(step), at);
    wgmma_fence();
    Wgmma<kState>::template rs<1>(s, m[0], m[1], m[2], m[3],
                                  advance(db, Update::tokens(step) * kMnMajorStep), 1);
    wgmma_commit_group();
    if (step + 1 < Update::kSteps) load(step + 1);
    wgmma_wait_group<0>();
    keep_operand(m);
  }
}

/// The state of a unit before the block's segment. All its loads are in flight together.
template <int kState>
__device__ __forceinline__ void entering_state(float (&s)[kState / 2], const ScanParameters& p,
                                               const Block& block, int unit, const Place& at) {
  if (p.entering == nullptr) {
#pragma unroll
    for (float& value : s) value = 0;
    return;
  }
  const std::int64_t index = static_cast<std::int64_t>(block.segment) * p.sizes.units + unit;
  load_fragment<kState>(s, p.entering + index * kPart * kState, at);
}

/// Warpgroups 0 and 1: the recurrence of two units.
template <int kState, int kColumns>
__device__ void run_states(const ScanParameters& p, const Block& block, std::byte* shared) {
  using L = Layout<kState>;
  const Place place;  // made again where it is used: registers are few
  auto* barriers = reinterpret_cast<Barriers*>(shared + L::kBarrierOffset);
  const int v = place.group * kPairUnits;
  std::byte* copy0 = shared + L::kStateOffset + v * L::kStateTiles * kTileBytes;
  std::byte* copy1 = copy0 + L::kStateTiles * kTileBytes;
  float s0[kState / 2], s1[kState / 2];
  entering_state<kState>(s0, p, block, block.unit(p.sizes, v), place);
  entering_state<kState>(s1, p, block, block.unit(p.sizes, v + 1), place);
  copy_state<kState>(s0, copy0, &barriers->copied[v], place);
  copy_state<kState>(s1, copy1, &barriers->copied[v + 1], place);
  int place0 = v, step = 1;  // of the warp's factors of the first unit; from there to the second's
  if constexpr (kColumns != kPart) {
    const CutHeads<kColumns> heads(block.base);
    place0 = heads.of(v, place.warp);
    step = heads.of(v + 1, place.warp) - place0;
  }
#pragma unroll 1
  for (int i = 0; i < block.chunks; ++i) {
    const int stage = i % kStages;
    const std::byte* x = shared + (stage * L::kStageTiles + v) * kTileBytes;
    const std::byte* b = shared + (stage * L::kStageTiles + kUnits + L::kStateTiles) * kTileBytes;
    const float* factors = reinterpret_cast<const float*>(shared + L::kFactorOffset) +
                           (stage * kUnits + place0) * kFactorFloats;
    mbarrier_wait(&barriers->full[stage], i / kStages % 2);
    update_state<kState>(s0, x, b, factors, place.again());
    mbarrier_wait(&barriers->read[v], i % 2);
    copy_state<kState>(s0, copy0, &barriers->copied[v], place.again());
    update_state<kState>(s1, x + kTileBytes, b, factors + step * kFactorFloats, place.again());
    mbarrier_arrive(&barriers->empty[stage]);
    mbarrier_wait(&barriers->read[v + 1], i % 2);
    copy_state<kState>(s1, copy1, &barriers->copied[v + 1], place.again());
  }

  const Block tail(p.sizes);
  if (tail.segment != p.sizes.segments - 1) return;
  const Place at = place.again();
  const std::int64_t size = static_cast<std::int64_t>(kPart) * kState;
  if (p.final_state != nullptr) {
    float* const first = p.final_state + tail.unit(p.sizes, v) * size;
    float* const second = p.final_state + tail.unit(p.sizes, v + 1) * size;
    if (tail.valid(p.sizes, v)) store_matrix<kState>(first, s0, at);
    if (tail.valid(p.sizes, v + 1)) store_matrix<kState>(second, s1, at);
  }
}

/// The decay over the whole sequence of a head.
__device__ __forceinline__ void write_total_decay(const ScanParameters& p, const Block& block,
                                                  int head) {
  float decay = 1;
  const int pieces = (p.sizes.segments - 1) * p.sizes.pieces;
  for (int k = 0; k < pieces; ++k) decay *= fmaxf(p.through[k * p.sizes.heads + head], 0);
  for (int i = 0; i < block.chunks; ++i) {
    const std::int64_t record =
        static_cast<std::int64_t>(block.first_chunk + i) * p.sizes.heads + head;
    decay *= p.records[record * kForwardRecordFloats + kRowIn * kChunk + kChunk - 1];
  }
  p.total_decay[head] = decay;
}

/// Warpgroups 2 and 3: the outputs of two units; their first threads issue the loads. CB is made
/// anew for each unit, one ahead, while the unit before it is written: that costs fewer registers
/// than to keep it.
template <int kState, int kColumns>
__device__ void run_outputs(const ScanParameters& p, const Block& block, std::byte* shared) {
  using L = Layout<kState>;
  const Place at;
  auto* barriers = reinterpret_cast<Barriers*>(shared + L::kBarrierOffset);
  const int half = at.group - kPairs;
  const bool loader = at.thread == 0;
  const int v = (at.group - kPairs) * kPairUnits;
  std::byte* staging = shared + L::kStagingOffset + (2 * v + at.warp) * kStagingBytes;
  const std::uint32_t causal = causal_bits(at);
  if (loader) {
    prefetch_tensor_map(&p.x);
    prefetch_tensor_map(&p.bc);
    load_chunk<kState, kColumns>(p, block, half, 0, shared);
  }
  const bool last = block.segment == p.sizes.segments - 1;
  constexpr int kHeads = kUnitHeads<kColumns>;
  if (last && p.total_decay != nullptr && at.thread < kPairUnits * kHeads) {
    const int unit = block.unit(p.sizes, v + at.thread / kHeads);
    write_total_decay(p, block, unit_head<kColumns>(p.sizes, unit, at.thread % kHeads));
  }
  __syncwarp();
  float cb[32];
  mbarrier_wait(&barriers->full[0], 0);
  issue_product<kState>(cb, shared + kUnits * kTileBytes,
                        shared + (kUnits + L::kStateTiles) * kTileBytes);
  wgmma_wait_group<0>();
  for (int step = 0; step < kPairUnits * block.chunks; ++step) {
    const int i = step / kPairUnits, stage = i % kStages, u = v + step % kPairUnits;
    const std::byte* tiles = shared + stage * L::kStageTiles * kTileBytes;
    const std::byte* c = tiles + kUnits * kTileBytes;
    const std::byte* x = tiles + u * kTileBytes;
    int place = u, second = 0, own = kStrips;  // of factors; of those of the second head
    if constexpr (kColumns != kPart) {
      const CutHeads<kColumns> heads(block.base);
      place = heads.of(u, 0);
      second = (heads.of(u, kStrips - 1) - place) * kFactorFloats;
      own = heads.own(u);
    }
    const float* factors = reinterpret_cast<const float*>(shared + L::kFactorOffset) +
                           (stage * kUnits + place) * kFactorFloats;
    const Span* spans = reinterpret_cast<const Span*>(shared + L::kSpanOffset) + stage * kChunk;
    float y[32];
    std::uint32_t m[16];
    mbarrier_wait(&barriers->copied[u], i % 2);
    issue_product<kState>(y, c, shared + L::kStateOffset + u * L::kStateTiles * kTileBytes);
    if (loader && step % kPairUnits == 0) {
      load_chunk<kState, kColumns>(p, block, half, i + 1, shared);
    }
    __syncwarp();
    std::uint32_t bits = causal;
    if (spans[kChunk - 1].start != 0) {
      bits &= row_bits(spans[at.row].start, at.column, 0) |
              row_bits(spans[at.row + 8].start, at.column, 2);
    }
    if (kHeads == 1 || own == kStrips) {
      decayed(m, cb, bits, factors, at);
    } else {
      if (at.lane == 0) bulk_wait_group_read<0>();
      __syncwarp();
      decayed(m, staging, cb, bits, factors, second, at.again());
      __syncwarp();
    }
    wgmma_wait_group<0>();
    if (at.lane == 0) mbarrier_arrive(&barriers->read[u]);
    if constexpr (kColumns == kPart) {
      scale_rows(y, factors[kRowIn * kChunk + at.row], factors[kRowIn * kChunk + at.row + 8]);
      issue_inside(y, m, x);
    } else {
      const float* in = factors + kRowIn * kChunk;
      scale_strips(y, in, in + second, own, at.again());
      if (own == kStrips) {
        issue_inside(y, m, x);
      } else {
        add_strips(y, m, staging, x, own, at.again());
      }
    }
    const int following = min(step + 1, kPairUnits * block.chunks - 1) / kPairUnits;
    const std::byte* next = shared + (following % kStages * L::kStageTiles + kUnits) * kTileBytes;
    mbarrier_wait(&barriers->full[following % kStages], following / kStages % 2);
    wgmma_wait_group<0>();
    issue_product<kState>(cb, next, next + L::kStateTiles * kTileBytes);
    const float skip0 = barriers->skips[place];
    const float skip1 = kHeads == 1 ? skip0 : barriers->skips[place + second / kFactorFloats];
    const auto skip = [&](int k) { return k < own ? skip0 : skip1; };
    write_y(p, y, x, block.unit(p.sizes, u), skip, block.valid(p.sizes, u), token_of(block, i),
            staging, kHeads == 1 ? at : at.again());
    if (step % kPairUnits == kPairUnits - 1) mbarrier_arrive(&barriers->empty[stage]);
    wgmma_wait_group<0>();
  }
  finish_sends(at);
}

template <int kState, int kColumns>
__global__ void __launch_bounds__(kThreads, 1) scan(const __grid_constant__ ScanParameters p) {
  using L = Layout<kState>;
  extern __shared__ __align__(1024) std::byte shared[];
  const Block block(p.sizes);
  auto* barriers = reinterpret_cast<Barriers*>(shared + L::kBarrierOffset);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      mbarrier_init(&barriers->full[i], kPairs);
      mbarrier_init(&barriers->empty[i], kThreads);
    }
    for (int u = 0; u < kUnits; ++u) {
      mbarrier_init(&barriers->copied[u], 4);
      mbarrier_init(&barriers->read[u], 4);
    }
    mbarrier_init_fence();
  }
  griddepcontrol_wait();
  if (threadIdx.x < kUnits) {
    const int v = static_cast<int>(threadIdx.x);
    int head = block.unit(p.sizes, v) / p.sizes.parts;
    if constexpr (kColumns != kPart)
      head = CutHeads<kColumns>::at(p.sizes, block.group, block.base, v);
    barriers->skips[threadIdx.x] = parameter(p.d, head, p.bf16_parameters);
  }
  __syncthreads();
  if (threadIdx.x < kPairs * 128) {
    setmaxnreg_inc<160>();
    run_states<kState, kColumns>(p, block, shared);
  } else {
    setmaxnreg_dec<96>();
    run_outputs<kState, kColumns>(p, block, shared);
  }
}

template <int kState, int kColumns>
cudaError_t launch(const ScanParameters& p, cudaStream_t stream) {
  using L = Layout<kState>;
  const auto kernel = scan<kState, kColumns>;
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, L::kBytes);
  if (status != cudaSuccess) return status;
  const int sets = (p.sizes.group_units + kUnits - 1) / kUnits;
  const dim3 grid(static_cast<unsigned>(p.sizes.groups * sets),
                  static_cast<unsigned>(p.sizes.segments));
  return launch_dependent(kernel, grid, kThreads, L::kBytes, stream, p);
}

}  // namespace

cudaError_t launch_scan(const ScanParameters& parameters, cudaStream_t stream) {
  return with_kernel(parameters, [&]<int kState, int kColumns>() {
    return launch<kState, kColumns>(parameters, stream);
  });
}

}  // namespace stowage::kernels::ssd
