#pragma once

#include "kernels/ssd/ssd_device.cuh"

/// The pieces of segments, and how much of one matters: the blocks of the kernel that makes their
/// states (ssd_states.cu) ask.
namespace stowage::kernels::ssd {

/// The units of a block; beyond the group's last one, that one again.
struct Units {
  int first, last;
  __device__ __forceinline__ int operator[](int w) const { return min(first + w, last); }
};

/// The chunks that a block visits: `count` of them from `first` on, by `step`.
struct Range {
  int first, count, step;
  bool cut;  ///< the decay over the piece is zero
};

/// Chunks next to the far edge beyond which all units' states have decayed by kForgotten, at
/// most `count`; one warp calls it.
template <int kUnits, int kColumns>
__device__ int remembered(const StatesParameters& p, const Units& units, int edge, int count,
                          bool reverse) {
  constexpr int kHeads = kUnitHeads<kColumns>;
  const int lane = static_cast<int>(threadIdx.x % 32);
  float decay = 0;
  for (int base = 0; base < count; base += 32) {
    const int i = base + lane;
    float log = 0;
    if (i < count) {
      const std::int64_t chunk = reverse ? edge + i : edge - 1 - i;
      const auto last = [&](int k) {
        const int head = unit_head<kColumns>(p.sizes, units[k / kHeads], k % kHeads);
        return p.records[(chunk * p.sizes.heads + head) * p.sizes.record_floats + kRowLog * kChunk +
                         kChunk - 1];
      };
      log = last(0);
#pragma unroll
      for (int k = 1; k < kUnits * kHeads; ++k) log = fmaxf(log, last(k));
    }
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const float before = __shfl_up_sync(0xFFFFFFFFU, log, step);
      if (lane >= step) log += before;
    }
    const unsigned forgotten = __ballot_sync(0xFFFFFFFFU, decay + log < -kForgottenDigits);
    if (forgotten != 0) return min(base + __ffs(static_cast<int>(forgotten)), count);
    decay += __shfl_sync(0xFFFFFFFFU, log, 31);
  }
  return count;
}

/// What a piece of a segment adds to the state at the segment's far edge comes from its chunks next
/// to its own far edge: not beyond a document boundary, nor beyond what is forgotten at the
/// segment's. None if that lies between the piece and the edge.
template <int kUnits, int kColumns>
__device__ Range local_range(const StatesParameters& p, const Units& units, int piece, bool reverse,
                             int* found) {
  const Sizes& sizes = p.sizes;
  const int segment_begin = piece / sizes.pieces * sizes.segment_chunks;
  const int segment_end = segment_begin + sizes.segment_chunks;
  const int begin = min(piece_begin(sizes, piece), sizes.chunks);
  const int end = min(min(begin + sizes.piece_chunks, segment_end), sizes.chunks);
  const int edge = reverse ? segment_begin : segment_end;
  const int first = reverse ? edge : begin, last = reverse ? end : edge;  // up to the edge
  if (threadIdx.x == 0) *found = reverse ? last : first - 1;
  __syncthreads();
  for (int c = first + static_cast<int>(threadIdx.x); c < last; c += kUnits * 128) {
    if (p.spans[c * kChunk + kChunk - 1].start == 0) continue;
    reverse ? atomicMin(found, c) : atomicMax(found, c);
  }
  __syncthreads();
  const int boundary = *found;
  const bool bounded = boundary >= first && boundary < last;
  const bool unused = begin == end || p.spans[edge * kChunk].start != 0;
  const int reach = !bounded ? last - first : reverse ? boundary - first + 1 : last - boundary;
  __syncthreads();
  if (threadIdx.x < 32) {
    const int count = unused ? 0 : remembered<kUnits, kColumns>(p, units, edge, reach, reverse);
    if (threadIdx.x == 0) *found = count;
  }
  __syncthreads();
  const int between = last - first - (end - begin);  // chunks from the piece to the edge
  const int count = max(*found - between, 0);
  return {reverse ? begin + count - 1 : end - count, count, reverse ? -1 : 1,
          count < end - begin || bounded};
}

/// The piece of a block whose place among all of a direction is `index`. Pieces next to the far
/// edge come first: they have work, the others have some if a head remembers that long.
__device__ __forceinline__ int piece_of(const Sizes& sizes, int index, bool reverse) {
  const int senders = sizes.segments - 1;
  const int away = index / senders, sender = index % senders;
  return reverse ? (sender + 1) * sizes.pieces + away : (sender + 1) * sizes.pieces - 1 - away;
}

}  // namespace stowage::kernels::ssd
