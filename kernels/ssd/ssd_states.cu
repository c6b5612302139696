// States of the scan at segment and chunk borders, without the outputs.
//
//   state:   S <- 2^(a_63) S + sum_t w_t X_t^T B_t      over the tokens t of a chunk, in order
//   adjoint: G <- 2^(a_63) G + sum_t 2^(a_t) dY_t^T C_t                       in reverse order
//
// S, G: (64 columns of X) x N, fp32, the accumulators of one warpgroup; w, a: ssd_prepare.cu. The
// scaled V^T comes from shared memory by transposing loads and is the A operand, for the tiles as a
// sum of two bf16, so that no digit of it is lost; U is B as it lies.
// Two uses: `launch_segment_states` gives the local states of every segment's pieces at their far
// edges, so that segments of one sequence can run at the same time; a piece starts at the last
// document boundary, or where what came before has decayed by 2^-40 at the segment's edge, and does
// nothing where that lies behind it.
// `launch_chunk_states` leaves the state before (the adjoint after) every chunk as fp16 tiles, each
// scaled by a power of two: their rounding is what the gradients of decays feel most.
// Where units cut heads, a warp takes the factors of its strip's head, and images lie by rows of
// all units, so that the rows of a head are neighbours.
// A block: two units of a group share U. With tiles a warp of its own issues the bulk loads, as
// soon as one of four stages is empty. Without them the first thread does, two chunks ahead, and
// two blocks share a multiprocessor: one loads while the other starts, ends or multiplies.
// Cost per token and unit: 128 N flops, twice for the tiles; 128 + N bytes in, 2 N out for the
// tiles. Deterministic.
// Limits: the tiles make the backward memory-bound (4 N bytes a token and unit, written and read;
// twice the warpgroups, each with half of a state, take a tenth longer; so does more overlap, the
// next operand and the image made while the products run). The segment states are latency, as
// blocks with a head of long memory go through all chunks, most through nine: hence the pieces.

#include "kernels/hopper/mbarrier.cuh"
#include "kernels/ssd/ssd_pieces.cuh"

namespace stowage::kernels::ssd {
namespace {

/// Shared memory of a block, 1024-byte aligned tiles first.
template <int kState, int kColumns, bool kImages>
struct Layout {
  static constexpr int kUnits = kStatesUnits;  ///< warpgroups, each with one unit
  static constexpr int kConsumers = kUnits * 128;
  static constexpr int kThreads = kConsumers + (kImages ? 32 : 0);  ///< then a warp that loads
  static constexpr int kStages = kImages ? 4 : 3;
  static constexpr int kBlocks = kImages ? 1 : 2;  ///< of a multiprocessor
  static constexpr int kUTiles = kState / 64;
  static constexpr int kStageTiles = kUnits + kUTiles;
  static constexpr int kImageBytes = kUTiles * kTileBytes;
  static constexpr int kHeads = kUnitHeads<kColumns>;
  static constexpr int kFactorFloats = 2 * kChunk;  ///< rows weight, in, of a head
  static constexpr int kUnitFloats = kHeads * kFactorFloats;
  static constexpr int kImageOffset = kStages * kStageTiles * kTileBytes;
  static constexpr int kFactorOffset = kImageOffset + (kImages ? kUnits * kImageBytes : 0);
  static constexpr int kBarrierOffset =
      kFactorOffset + kStages * kUnits * kUnitFloats * static_cast<int>(sizeof(float));
  static constexpr int kBytes = kBarrierOffset + 2 * kStages * 8;
  static constexpr int kLoadBytes =
      kStageTiles * kTileBytes + kUnits * kUnitFloats * static_cast<int>(sizeof(float));
};

/// Where a block's operands lie. In shared memory, made once: divisions for every chunk would delay
/// its loads, and registers are few.
template <int kColumns>
struct Source {
  static constexpr int kUnits = kStatesUnits;
  static constexpr int kHeads = kUnitHeads<kColumns>;
  int v_column, u_column;
  const float* records[kUnits * kHeads];  ///< rows weight and in of chunk 0
  std::int64_t record_step;               ///< to the next chunk's

  Source() = default;
  __device__ __forceinline__ Source(const StatesParameters& p, const StatesDirection& d,
                                    const Units& units)
      : v_column(units[0] * kPart),
        u_column(d.u_column + units[0] / p.sizes.group_units * p.state),
        record_step(static_cast<std::int64_t>(p.sizes.heads) * p.sizes.record_floats) {
    for (int w = 0; w < kUnits * kHeads; ++w) {
      const std::int64_t head = unit_head<kColumns>(p.sizes, units[w / kHeads], w % kHeads);
      records[w] = p.records + head * p.sizes.record_floats + kRowWeight * kChunk;
    }
  }
};

/// Loads chunk i of the range into its stage once the stage is empty. One thread.
template <int kState, int kColumns, bool kImages>
__device__ void load_chunk(const StatesDirection& d, const Source<kColumns>& source,
                           const Range& range, int i, std::byte* shared) {
  using L = Layout<kState, kColumns, kImages>;
  constexpr int kUnits = L::kUnits;
  if (i >= range.count) return;
  const int stage = i % L::kStages;
  auto* barrier = reinterpret_cast<Mbarrier*>(shared + L::kBarrierOffset) + stage;
  if (i >= L::kStages) mbarrier_wait(barrier + L::kStages, (i / L::kStages - 1) % 2);
  mbarrier_arrive_expect_tx(barrier, L::kLoadBytes);
  const int chunk = range.first + i * range.step;
  const int token = chunk * kChunk;
  std::byte* tiles = shared + stage * L::kStageTiles * kTileBytes;
  auto* factors = reinterpret_cast<float*>(shared + L::kFactorOffset);
  load_tiles(tiles, &d.v, barrier, source.v_column, token);
  load_tiles(tiles + kUnits * kTileBytes, &d.u, barrier, source.u_column, token);
#pragma unroll
  for (int w = 0; w < kUnits * L::kHeads; ++w) {
    bulk_load(factors + (stage * kUnits * L::kHeads + w) * L::kFactorFloats,
              source.records[w] + chunk * source.record_step, L::kFactorFloats * sizeof(float),
              barrier);
  }
}

/// The largest magnitude in a warp's part of a state, as the bits of an fp32.
template <int kState>
__device__ __forceinline__ std::uint32_t largest_magnitude(const float (&s)[kState / 2]) {
  float largest = 0;
#pragma unroll
  for (const float value : s) largest = fmaxf(largest, fabsf(value));
  return __reduce_max_sync(0xFFFFFFFFU, __float_as_uint(largest));
}

/// Sends the image of a unit's state at a chunk.
template <int kState, int kColumns>
__device__ __forceinline__ void store_image(const StatesDirection& d, const Sizes& sizes,
                                            std::int64_t chunk, int unit, const std::byte* image) {
  constexpr int kTiles = kState / 64, kTile = kPart * 64;
  auto* images = static_cast<__half*>(d.images);
  if constexpr (kColumns == kPart) {
    bulk_store(images + (chunk * sizes.units + unit) * (kTiles * kTile), image,
               kTiles * kTileBytes);
  } else {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      bulk_store(images + ((chunk * kTiles + t) * sizes.units + unit) * kTile,
                 image + t * kTileBytes, kTileBytes);
    }
  }
}

/// `piece`: of the sequence, or with images the segment.
template <int kState, int kColumns, bool kImages>
__device__ void consume(const StatesParameters& p, const StatesDirection& d,
                        const Source<kColumns>& source, const Range& range, int piece,
                        const Units& units, bool valid, std::byte* shared) {
  using L = Layout<kState, kColumns, kImages>;
  constexpr int kUnits = L::kUnits;
  __shared__ uint4 maxima_words[kUnits];  // by warp
  auto* maxima = reinterpret_cast<std::uint32_t(*)[4]>(maxima_words);
  const Place at;
  const int group = at.group;
  const int unit = units[group];
  auto* full = reinterpret_cast<Mbarrier*>(shared + L::kBarrierOffset);
  Mbarrier* empty = full + L::kStages;
  std::byte* image = shared + L::kImageOffset + group * L::kImageBytes;
  const std::int64_t size = static_cast<std::int64_t>(kPart) * kState;

  float s[kState / 2];
  if constexpr (kImages) {
    incoming_state<kState, kColumns>(s, p.sizes, piece, d.reverse, unit, p.spans, d.partials,
                                     d.through, d.edge_state, at);
  } else {
#pragma unroll
    for (float& value : s) value = 0;
  }
  const int head = head_of<kColumns>(p.sizes, unit, at.warp);
  const int own_factors = (head - unit_head<kColumns>(p.sizes, unit, 0)) * L::kFactorFloats;
  float through = range.count == 0 ? -1 : range.cut ? 0 : 1;
  if (!kImages && threadIdx.x == 0) {
    for (int i = 0; i < L::kStages - 1; ++i)
      load_chunk<kState, kColumns, kImages>(d, source, range, i, shared);
  }
  RingPosition<L::kStages> ring;
  for (int i = 0; i < range.count; ++i, ring.next()) {
    if (!kImages && threadIdx.x == 0) {
      load_chunk<kState, kColumns, kImages>(d, source, range, i + L::kStages - 1, shared);
    }
    if constexpr (kImages) {
      const std::uint32_t largest = largest_magnitude<kState>(s);
      if (at.lane == 0) maxima[group][at.warp] = largest;
      if (at.thread == 0) bulk_wait_group_read<0>();
      named_barrier_sync(1 + group, 128);
      const uint4 all = *reinterpret_cast<const uint4*>(maxima[group]);
      const HalfScale scale(max(max(all.x, all.y), max(all.z, all.w)));
      store_tiles_f16<kState / 8>(shared_address(image), s, scale.factor, at);
      fence_proxy_async();
      named_barrier_sync(1 + group, 128);
      if (at.thread == 0 && valid) {
        const std::int64_t chunk = range.first + i * range.step;
        const std::int64_t index = chunk * p.sizes.units + unit;
        store_image<kState, kColumns>(d, p.sizes, chunk, unit, image);
        p.scales[index * kScaleFloats + (d.reverse ? 1 : 0)] = scale.inverse;
        bulk_commit_group();
      }
    }
    mbarrier_wait(&full[ring.stage], ring.parity);
    const std::byte* tiles = shared + ring.stage * L::kStageTiles * kTileBytes;
    const float* factors = reinterpret_cast<const float*>(shared + L::kFactorOffset) +
                           (ring.stage * kUnits + group) * L::kUnitFloats + own_factors;
    const float decay = factors[L::kFactorFloats - 1];
    std::uint32_t a[4][4], rest[4][4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float* weights = factors + (d.reverse ? kChunk : 0);
      const std::uint32_t v = shared_address(tiles) + group * kTileBytes;
      if constexpr (kImages) {
        load_transposed_split(a[k], rest[k], v, weights, k, at);
      } else {
        load_transposed_scaled(a[k], v, weights, k, at);
      }
    }
    through *= decay;
#pragma unroll
    for (float& value : s) value *= decay;
    const std::uint64_t u = mn_major<Swizzle::b128>(tiles + kUnits * kTileBytes, kTileBytes);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      Wgmma<kState>::template rs<1>(s, a[k][0], a[k][1], a[k][2], a[k][3],
                                    advance(u, k * kMnMajorStep), 1);
      if constexpr (kImages) {
        Wgmma<kState>::template rs<1>(s, rest[k][0], rest[k][1], rest[k][2], rest[k][3],
                                      advance(u, k * kMnMajorStep), 1);
      }
    }
    wgmma_commit_group();
    wgmma_wait_group<0>();
    mbarrier_arrive(&empty[ring.stage]);
  }

  if (!valid) return;
  if constexpr (kImages) {
    const bool last = d.reverse ? piece == 0 : piece == p.sizes.segments - 1;
    if (last && d.end_state != nullptr) store_matrix<kState>(d.end_state + unit * size, s, at);
    if (at.thread == 0) bulk_wait_group<0>();
  } else {
    const std::int64_t index = static_cast<std::int64_t>(piece) * p.sizes.units + unit;
    // `through` speaks for all units of a head, also for those that another block has.
    if (range.count > 0 || L::kHeads > 1 || kUnits % p.sizes.parts != 0)
      store_fragment<kState>(d.partials + index * size, s, at);
    if constexpr (L::kHeads == 1) {
      if (at.thread == 0 && unit % p.sizes.parts == 0) {
        d.through[piece * p.sizes.heads + unit / p.sizes.parts] = through;
      }
    } else if (at.lane == 0 && (unit * kStrips + at.warp) % (kColumns / kStrip) == 0) {
      d.through[piece * p.sizes.heads + head] = through;
    }
  }
}

template <int kState, int kColumns, bool kImages>
__global__ void __launch_bounds__(Layout<kState, kColumns, kImages>::kThreads,
                                  Layout<kState, kColumns, kImages>::kBlocks)
    states(const __grid_constant__ StatesParameters p) {
  using L = Layout<kState, kColumns, kImages>;
  extern __shared__ __align__(1024) std::byte shared[];
  __shared__ int found;
  __shared__ Source<kColumns> source;
  const StatesDirection& d = p.direction[blockIdx.z];
  const int index = static_cast<int>(blockIdx.y);
  const int piece = kImages ? index : piece_of(p.sizes, index, d.reverse);  // or the segment
  constexpr int kUnits = L::kUnits;
  const int sets = (p.sizes.group_units + kUnits - 1) / kUnits;
  const int group = static_cast<int>(blockIdx.x) / sets;
  const int first = static_cast<int>(blockIdx.x) % sets * kUnits;
  const int base = group * p.sizes.group_units;
  const Units units{base + first, base + p.sizes.group_units - 1};
  auto* full = reinterpret_cast<Mbarrier*>(shared + L::kBarrierOffset);
  if (threadIdx.x == 0) {
    for (int i = 0; i < L::kStages; ++i) {
      mbarrier_init(&full[i], 1);
      mbarrier_init(&full[L::kStages + i], L::kConsumers);
    }
    mbarrier_init_fence();
    source = Source<kColumns>(p, d, units);
  }
  griddepcontrol_launch_dependents();
  griddepcontrol_wait();

  Range range;
  if constexpr (kImages) {
    const int begin = piece * p.sizes.segment_chunks;
    const int end = min(begin + p.sizes.segment_chunks, p.sizes.chunks);
    range = {d.reverse ? end - 1 : begin, end - begin, d.reverse ? -1 : 1, false};
  } else {
    range = local_range<kUnits, kColumns>(p, units, piece, d.reverse, &found);
  }
  __syncthreads();
  const int w = static_cast<int>(threadIdx.x / 128);
  if (kImages && w == kUnits) {
    if (threadIdx.x % 32 != 0) return;
    for (int i = 0; i < range.count; ++i)
      load_chunk<kState, kColumns, kImages>(d, source, range, i, shared);
    return;
  }
  consume<kState, kColumns, kImages>(p, d, source, range, piece, units,
                                     first + w < p.sizes.group_units, shared);
}

template <int kState, int kColumns, bool kImages>
cudaError_t launch(const StatesParameters& p, int pieces, cudaStream_t stream) {
  using L = Layout<kState, kColumns, kImages>;
  const auto kernel = states<kState, kColumns, kImages>;
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, L::kBytes);
  if (status != cudaSuccess) return status;
  const int sets = (p.sizes.group_units + L::kUnits - 1) / L::kUnits;
  const dim3 grid(static_cast<unsigned>(p.sizes.groups * sets), static_cast<unsigned>(pieces),
                  static_cast<unsigned>(p.directions));
  return launch_dependent(kernel, grid, L::kThreads, L::kBytes, stream, p);
}

}  // namespace

cudaError_t launch_segment_states(const StatesParameters& parameters, cudaStream_t stream) {
  const int pieces = (parameters.sizes.segments - 1) * parameters.sizes.pieces;
  if (pieces == 0) return cudaSuccess;
  return with_kernel(parameters, [&]<int kState, int kColumns>() {
    return launch<kState, kColumns, false>(parameters, pieces, stream);
  });
}

cudaError_t launch_chunk_states(const StatesParameters& parameters, cudaStream_t stream) {
  const int segments = parameters.sizes.segments;
  return with_kernel(parameters, [&]<int kState, int kColumns>() {
    return launch<kState, kColumns, true>(parameters, segments, stream);
  });
}

}  // namespace stowage::kernels::ssd
