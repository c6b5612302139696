// What comes before the scan, in one pass over the rows of in_proj: xbc = silu(conv1d(.)), the step
// sizes and decays of ssd_prepare.cu, and the segment states of ssd_states.cu.
//
//   S = sum over the chunks c of a piece of (decay from c to its end) sum_t w_t X_t^T B_t
//
// A block: four units of a group (256 columns of X), the group's B and one tile of its C, over one
// segment (one or more pieces), from its last chunk to its first: then the decay to the end is
// known when a chunk comes, the weights carry it, S is only added to, and products end where it has
// fallen below 2^-40. It also leaves in L2 what the scan reads first. All blocks of a group
// convolve B.
// The last warp loads chunks of 64 tokens and the three rows before them, three stages deep, and
// makes the records meanwhile, from dt. Seven warps convolve a tile each in place: lanes 0 to 15
// the first 32 tokens, the others the rest, four channels a lane, as in conv1d_forward.cu; they
// send it off. Two warpgroups hold the states of two units each, as in ssd_scan.cu, and multiply
// the tiles that are done. xbc is what conv1d gives, to the bit. Deterministic.
// Cost: 4 bytes and about 14 flops a token and channel; the products (256 N flops a token and unit)
// hide behind them.
// Limits: the warps that convolve, two a scheduler, are at work for four fifths of the time, on
// chains through the special-function unit that so few do not fill; then they wait for loads.

#include "kernels/conv1d/conv1d_device.cuh"
#include "kernels/conv_scan/convolve_launch.hpp"
#include "kernels/hopper/mbarrier.cuh"
#include "kernels/hopper/setmaxnreg.cuh"
#include "kernels/ssd/ssd_record.cuh"

namespace stowage::kernels::conv_scan {
namespace {

using namespace ssd;
using conv1d::kChannels;
using conv1d::kPairs;

constexpr int kUnits = kScanUnits;
constexpr int kStages = 3;
constexpr int kStateWarps = 8;  ///< two warpgroups, two units each
constexpr int kProducer = 15;   ///< the warp; those between convolve
constexpr int kThreads = 512;
constexpr int kGroup = 8;       ///< rows in flight of a lane
constexpr int kStripRows = 32;  ///< of a lane, of a chunk
constexpr int kHaloBytes = kHalo * 128;

struct Barriers {
  Mbarrier full[kStages], done[kStages], empty[kStages];
  std::uint32_t begins[kStages][3];  ///< bit i of 96: row i - 3 of the chunk begins a document
  int live[kStages];                 ///< the chunk reaches the segment's end
};

template <int kState>
struct Layout {
  static constexpr int kStateTiles = kState / 64;
  static constexpr int kTiles = kUnits + kStateTiles + 1;  ///< X, B, C
  static constexpr int kHaloOffset = kStages * kTiles * kTileBytes;
  static constexpr int kWeightOffset = kHaloOffset + kStages * kTiles * kHaloBytes;
  static constexpr int kBarrierOffset =
      kWeightOffset + kStages * kUnits * kChunk * static_cast<int>(sizeof(float));
  static constexpr int kBytes = kBarrierOffset + static_cast<int>(sizeof(Barriers));
  static_assert(kTiles <= kProducer - kStateWarps);
};

/// The chunks and columns of a block.
template <int kState, int kColumns>
struct Block {
  static constexpr int kStateTiles = kState / 64;
  int segment, group, set, first_chunk, chunks;
  __device__ explicit Block(const Sizes& s) {
    const int sets = (s.group_units + kUnits - 1) / kUnits;
    segment = static_cast<int>(blockIdx.y);
    group = static_cast<int>(blockIdx.x) / sets;
    set = static_cast<int>(blockIdx.x) % sets;
    first_chunk = segment * s.segment_chunks;
    chunks = min(s.segment_chunks, s.chunks - first_chunk);
  }
  /// Unit v of the block; beyond the group's last one, that one again.
  __device__ int unit(const Sizes& s, int v) const {
    return group * s.group_units + min(set * kUnits + v, s.group_units - 1);
  }
  __device__ bool valid(const Sizes& s, int v) const { return set * kUnits + v < s.group_units; }
  /// Head v, of as many as the block has units, `u` of unit(v): that unit's, or where units cut
  /// heads, the block's v-th.
  __device__ int head(const Sizes& s, int u, int v) const {
    if constexpr (kColumns == kPart) return u / s.parts;
    return CutHeads<kColumns>::at(s, group, set * kUnits, v);
  }
  /// Whether head v of those that units cut begins in this block.
  __device__ bool begins(const Sizes& s, int v) const {
    const int base = set * kUnits;
    return CutHeads<kColumns>(base).begins(v, min(kUnits, s.group_units - base));
  }
  /// The place among those heads of the head of a warp's columns of unit v.
  __device__ __forceinline__ int place(int v, int warp) const {
    return kColumns == kPart ? v : CutHeads<kColumns>(set * kUnits).of(v, warp);
  }
  /// Chunk i of its walk: from the last one back.
  __device__ int chunk(int i) const { return first_chunk + chunks - 1 - i; }
  /// X, B, and C while there are tiles of it.
  __device__ int tiles() const { return kUnits + kStateTiles + (set < kStateTiles ? 1 : 0); }
  /// First column / 64 of tile w.
  __device__ int column_tile(const Sizes& s, int w) const {
    if (w < kUnits) return unit(s, w);
    const int first =
        w < kUnits + kStateTiles ? s.b_column / 64 + (w - kUnits) : s.c_column / 64 + set;
    return first + group * kStateTiles;
  }
  /// Whether this block is the one that stores tile w.
  __device__ bool stores(const Sizes& s, int w) const {
    return w < kUnits ? valid(s, w) : w >= kUnits + kStateTiles || w - kUnits == set;
  }
};

/// What records and spans of a chunk are made from, as a lane of the last warp reads it; nothing
/// waits for the loads before it is used.
struct RawSteps {
  int document[3], before[3];   ///< of rows lane - kHalo, lane, lane + 32, and of the rows before
  __nv_bfloat16 dt[kUnits][2];  ///< dt_raw of the lane's two tokens

  template <class Block>
  __device__ __forceinline__ RawSteps(const PrepareParameters& p, const Block& block, int token,
                                      int lane) {
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      const int t = token + lane + (i == 0 ? -kHalo : 32 * (i - 1));
      const bool there = p.seq_idx != nullptr && t > 0 && t < p.sizes.tokens;
      document[i] = there ? p.seq_idx[t] : 0;
      before[i] = there ? p.seq_idx[t - 1] : 0;
    }
    const auto* raw = static_cast<const __nv_bfloat16*>(p.dt_raw);
    const std::int64_t t = token + 2 * lane;
#pragma unroll
    for (int v = 0; v < kUnits; ++v) {
      const __nv_bfloat16* from =
          raw + t * p.dt_stride + block.head(p.sizes, block.unit(p.sizes, v), v);
      dt[v][0] = t < p.sizes.tokens ? from[0] : __nv_bfloat16();
      dt[v][1] = t + 1 < p.sizes.tokens ? from[p.dt_stride] : __nv_bfloat16();
    }
  }
  /// Bit of the lane: its row of set i begins a document.
  __device__ __forceinline__ std::uint32_t begins(int i) const {
    return __ballot_sync(~0U, document[i] != before[i]);
  }
};

/// Issues the loads of a chunk's tiles and of the rows before it. One thread.
template <int kState, int kColumns>
__device__ void load_chunk(const ConvolveParameters& p, const Block<kState, kColumns>& block,
                           int token, int stage, Mbarrier* full, std::byte* shared) {
  using L = Layout<kState>;
  const int tiles = block.tiles();
  std::byte* tile = shared + stage * L::kTiles * kTileBytes;
  std::byte* halo = shared + L::kHaloOffset + stage * L::kTiles * kHaloBytes;
  mbarrier_arrive_expect_tx(full, static_cast<std::uint32_t>(tiles * (kTileBytes + kHaloBytes)));
#pragma unroll 1
  for (int w = 0; w < tiles; ++w) {
    const int column = block.column_tile(p.steps.sizes, w);
    bulk_load_3d(tile + w * kTileBytes, &p.in, full, 0, token, column, CachePolicy::evict_first);
    bulk_load_3d(halo + w * kHaloBytes, &p.halo, full, 0, token - kHalo, column);
  }
}

/// The last warp: loads a chunk and makes its records, from what it read a chunk ahead.
template <int kState, int kColumns>
__device__ void produce(const ConvolveParameters& p, const Block<kState, kColumns>& block,
                        std::byte* shared) {
  using L = Layout<kState>;
  const Sizes& sizes = p.steps.sizes;
  const int lane = static_cast<int>(threadIdx.x % 32);
  auto* barriers = reinterpret_cast<Barriers*>(shared + L::kBarrierOffset);
  const bool states = p.partials != nullptr && block.segment < sizes.segments - 1;
  HeadSteps steps[kUnits];
  float decay[kUnits];
#pragma unroll
  for (int v = 0; v < kUnits; ++v) {
    steps[v] = HeadSteps(p.steps, block.head(sizes, block.unit(sizes, v), v));
    decay[v] = states ? 1 : 0;
  }
  RawSteps next(p.steps, block, block.chunk(0) * kChunk, lane);
  RingPosition<kStages> ring;
  for (int i = 0; i < block.chunks; ++i, ring.next()) {
    const int chunk = block.chunk(i), token = chunk * kChunk;
    Mbarrier* full = &barriers->full[ring.stage];
    mbarrier_wait(&barriers->empty[ring.stage], ring.parity ^ 1U);
    if (lane == 0) load_chunk(p, block, token, ring.stage, full, shared);
    __syncwarp();
    const RawSteps raw = next;
    next = RawSteps(p.steps, block, block.chunk(min(i + 1, block.chunks - 1)) * kChunk, lane);
    const std::uint32_t early = raw.begins(0) & ((1U << kHalo) - 1);
    const std::uint32_t low = raw.begins(1), high = raw.begins(2);
    const std::uint64_t begins = low | static_cast<std::uint64_t>(high) << 32;
    if (lane == 0) {
      std::uint32_t* words = barriers->begins[ring.stage];
      words[0] = early | low << kHalo;
      words[1] = __funnelshift_l(low, high, kHalo);
      words[2] = high >> (32 - kHalo);
    }
    const Span spans[] = {span_of(begins, 2 * lane), span_of(begins, 2 * lane + 1)};
    if (block.group == 0 && block.set == 0) {
      p.steps.spans[token + 2 * lane] = spans[0];
      p.steps.spans[token + 2 * lane + 1] = spans[1];
    }
    float* records[kUnits];
#pragma unroll
    for (int v = 0; v < kUnits; ++v) {
      const int unit = block.unit(sizes, v);
      const std::int64_t record =
          static_cast<std::int64_t>(chunk) * sizes.heads + block.head(sizes, unit, v);
      const bool write = kColumns == kPart ? block.valid(sizes, v) && unit % sizes.parts == 0
                                           : block.begins(sizes, v);
      records[v] = write ? p.steps.records + record * sizes.record_floats : nullptr;
    }
    float2 dt[kUnits];
#pragma unroll
    for (int v = 0; v < kUnits; ++v) {
      dt[v] = make_float2(__bfloat162float(raw.dt[v][0]), __bfloat162float(raw.dt[v][1]));
    }
    Contribution share[kUnits];
    make_records(share, p.steps, steps, dt, chunk, spans, lane, records);
    bool live = false;
    auto* weights =
        reinterpret_cast<float*>(shared + L::kWeightOffset) + ring.stage * kUnits * kChunk;
#pragma unroll
    for (int v = 0; v < kUnits; ++v) {
      live = live || decay[v] >= kForgotten;
      reinterpret_cast<float2*>(weights + v * kChunk)[lane] =
          make_float2(decay[v] * share[v].weight.x, decay[v] * share[v].weight.y);
      decay[v] *= share[v].decay;
    }
    if (states && chunk % p.piece_chunks == 0) {
      const std::int64_t piece = chunk / p.piece_chunks;
#pragma unroll
      for (int v = 0; v < kUnits; ++v) {
        const int unit = block.unit(sizes, v);
        const bool write =
            lane == v && (kColumns == kPart ? block.valid(sizes, v) && unit % sizes.parts == 0
                                            : block.begins(sizes, v));
        if (write) p.through[piece * sizes.heads + block.head(sizes, unit, v)] = decay[v];
        decay[v] = 1;
      }
    }
    if (lane == 0) barriers->live[ring.stage] = live ? 1 : 0;
    mbarrier_arrive(full);
  }
}

/// One tile of a chunk, in place. The lower half of the warp has rows 0 to 31, the upper one the
/// rest, whose three rows before are read before anything is written.
__device__ __forceinline__ void convolve_tile(const conv1d::Weights<kChannels>& weights,
                                              std::byte* tile, const std::byte* halo,
                                              const std::uint32_t* begins, int lane) {
  using Pack = conv1d::Packed<kPairs>;
  const int first = lane / 16 * kStripRows, piece = lane % 16;
  const auto at = [&](int row) {
    return reinterpret_cast<Pack*>(tile + row * 128 + ((piece / 2 ^ (row & 7)) << 4) +
                                   piece % 2 * 8);
  };
  // bits of rows first - 3 + i
  const std::uint32_t low = begins[first / 32], high = begins[first / 32 + 1];
  conv1d::Past past;
#pragma unroll
  for (int k = 0; k < kHalo; ++k) {
    const Pack* from = first == 0 ? reinterpret_cast<const Pack*>(halo + k * 128 + piece * 8)
                                  : at(first - kHalo + k);
    conv1d::unpack<kPairs>(past[k], *from);
    if (low >> k & 1U) conv1d::clear(past, k);
  }
  __syncwarp();
#pragma unroll 1
  for (int base = 0; base < kStripRows; base += kGroup) {
    Pack rows[kGroup];
#pragma unroll
    for (int i = 0; i < kGroup; ++i) rows[i] = *at(first + base + i);
    const std::uint32_t bits =
        __funnelshift_rc(low, high, static_cast<unsigned>(base + kHalo)) & ((1U << kGroup) - 1);
    if (__any_sync(~0U, bits != 0)) {
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        if (bits >> i & 1U) conv1d::clear(past, kHalo);
        *at(first + base + i) = conv1d::convolve(weights, past, rows[i]);
      }
    } else {  // no branch a row: rows overlap
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        *at(first + base + i) = conv1d::convolve(weights, past, rows[i]);
      }
    }
  }
}

/// Warp w of those that convolve: tile w of every chunk.
template <int kState, int kColumns, bool kNarrow>
__device__ void run_convolution(const ConvolveParameters& p, const Block<kState, kColumns>& block,
                                int w, std::byte* shared) {
  using L = Layout<kState>;
  const Sizes& sizes = p.steps.sizes;
  const int lane = static_cast<int>(threadIdx.x % 32);
  auto* barriers = reinterpret_cast<Barriers*>(shared + L::kBarrierOffset);
  const int column = block.column_tile(sizes, w);
  const bool stores = block.stores(sizes, w);
  const conv1d::Weights<kChannels> weights(p.weight, p.bias, column * 64 + lane % 16 * kChannels,
                                           p.steps.bf16_parameters,
                                           conv1d::missing_taps<kNarrow>(p.width));
  RingPosition<kStages> ring;
  int before = 0;
  for (int i = 0; i < block.chunks; ++i, ring.next()) {
    std::byte* tile = shared + (ring.stage * L::kTiles + w) * kTileBytes;
    const std::byte* halo = shared + L::kHaloOffset + (ring.stage * L::kTiles + w) * kHaloBytes;
    mbarrier_wait(&barriers->full[ring.stage], ring.parity);
    convolve_tile(weights, tile, halo, barriers->begins[ring.stage], lane);
    fence_proxy_async();
    mbarrier_arrive(&barriers->done[ring.stage]);
    if (i > 0) {  // the copy engine has read the tile of the chunk before long since
      if (lane == 0) bulk_wait_group_read<0>();
      mbarrier_arrive(&barriers->empty[before]);
    }
    __syncwarp();
    if (lane == 0) {
      if (stores) bulk_store_3d(&p.out, tile, 0, block.chunk(i) * kChunk, column);
      bulk_commit_group();
    }
    before = ring.stage;
  }
  if (lane == 0) bulk_wait_group<0>();
}

/// s += (w X)^T B, 16 tokens at a time.
template <int kState>
__device__ __forceinline__ void add_chunk(float (&s)[kState / 2], const std::byte* x,
                                          const std::byte* b, const float* weights,
                                          const Place& at) {
  const std::uint64_t db = mn_major<Swizzle::b128>(b, kTileBytes);
#pragma unroll 2
  for (int k = 0; k < kChunk / kKStep; ++k) {
    std::uint32_t a[4];
    load_transposed_scaled(a, shared_address(x), weights, k, at);
    wgmma_fence();
    Wgmma<kState>::template rs<1>(s, a[0], a[1], a[2], a[3], advance(db, k * kMnMajorStep), 1);
    wgmma_commit_group();
    wgmma_wait_group<0>();
  }
}

template <int kState>
__device__ __forceinline__ void clear_state(float (&s)[kState / 2]) {
#pragma unroll
  for (float& value : s) value = 0;
}

/// Warpgroups 0 and 1: the states of two units.
template <int kState, int kColumns>
__device__ void run_states(const ConvolveParameters& p, const Block<kState, kColumns>& block,
                           std::byte* shared) {
  using L = Layout<kState>;
  const Sizes& sizes = p.steps.sizes;
  const Place at;
  auto* barriers = reinterpret_cast<Barriers*>(shared + L::kBarrierOffset);
  const int v = 2 * at.group;
  const bool states = p.partials != nullptr && block.segment < sizes.segments - 1;
  const std::int64_t size = static_cast<std::int64_t>(kPart) * kState;
  float s0[kState / 2], s1[kState / 2];
  RingPosition<kStages> ring;
  for (int i = 0; i < block.chunks;) {
    clear_state<kState>(s0);
    clear_state<kState>(s1);
    // as far as the chunk that a piece begins with
    const int end = states ? i + block.chunk(i) % p.piece_chunks + 1 : block.chunks;
    for (; i < end; ++i, ring.next()) {
      mbarrier_wait(&barriers->full[ring.stage], ring.parity);
      mbarrier_wait(&barriers->done[ring.stage], ring.parity);
      if (barriers->live[ring.stage] != 0) {
        const std::byte* tiles = shared + ring.stage * L::kTiles * kTileBytes;
        const std::byte* b = tiles + kUnits * kTileBytes;
        const int place = block.place(v, at.warp), step = block.place(v + 1, at.warp) - place;
        const float* weights = reinterpret_cast<const float*>(shared + L::kWeightOffset) +
                               (ring.stage * kUnits + place) * kChunk;
        add_chunk<kState>(s0, tiles + v * kTileBytes, b, weights, at);
        add_chunk<kState>(s1, tiles + (v + 1) * kTileBytes, b, weights + step * kChunk, at);
      }
      mbarrier_arrive(&barriers->empty[ring.stage]);
    }
    if (!states) return;
    const std::int64_t piece = block.chunk(i - 1) / p.piece_chunks;
    float* to = p.partials + piece * sizes.units * size;
    if (block.valid(sizes, v)) store_fragment<kState>(to + block.unit(sizes, v) * size, s0, at);
    if (block.valid(sizes, v + 1)) {
      store_fragment<kState>(to + block.unit(sizes, v + 1) * size, s1, at);
    }
  }
}

template <int kState, int kColumns, bool kNarrow>
__global__ void __launch_bounds__(kThreads, 1)
    convolve(const __grid_constant__ ConvolveParameters p) {
  using L = Layout<kState>;
  extern __shared__ __align__(1024) std::byte shared[];
  const Block<kState, kColumns> block(p.steps.sizes);
  auto* barriers = reinterpret_cast<Barriers*>(shared + L::kBarrierOffset);
  if (threadIdx.x == 0) {
    const auto readers = 32U * static_cast<std::uint32_t>(block.tiles());
    for (int i = 0; i < kStages; ++i) {
      mbarrier_init(&barriers->full[i], 1 + 32);  // the loads, the records
      mbarrier_init(&barriers->done[i], readers);
      mbarrier_init(&barriers->empty[i], readers + 32 * kStateWarps);
    }
    mbarrier_init_fence();
  }
  griddepcontrol_launch_dependents();
  griddepcontrol_wait();
  __syncthreads();
  const int warp = uniform_warp_index();
  if (warp < kStateWarps) {
    setmaxnreg_inc<160>();
    run_states<kState, kColumns>(p, block, shared);
  } else {
    setmaxnreg_dec<96>();
    if (warp == kProducer) {
      produce<kState, kColumns>(p, block, shared);
    } else if (warp - kStateWarps < block.tiles()) {
      run_convolution<kState, kColumns, kNarrow>(p, block, warp - kStateWarps, shared);
    }
  }
}

template <int kState, int kColumns, bool kNarrow>
cudaError_t launch(const ConvolveParameters& p, cudaStream_t stream) {
  using L = Layout<kState>;
  const auto kernel = convolve<kState, kColumns, kNarrow>;
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, L::kBytes);
  if (status != cudaSuccess) return status;
  const Sizes& s = p.steps.sizes;
  const dim3 grid(static_cast<unsigned>(s.groups * ((s.group_units + kUnits - 1) / kUnits)),
                  static_cast<unsigned>(s.segments));
  return launch_dependent(kernel, grid, kThreads, L::kBytes, stream, p);
}

}  // namespace

cudaError_t launch_convolve(const ConvolveParameters& parameters, cudaStream_t stream) {
  return with_kernel(parameters, [&]<int kState, int kColumns>() {
    return parameters.width < conv1d::kTaps ? launch<kState, kColumns, true>(parameters, stream)
                                            : launch<kState, kColumns, false>(parameters, stream);
  });
}

}  // namespace stowage::kernels::conv_scan
