// What enters each segment of the forward:
//
//   S = sum over the pieces before it, nearest first, of (decay from piece to segment) S_piece
//
// and the decayed initial state, up to a document boundary or a piece of which nothing is left
// (StatesDirection::through). A kernel of its own, as 32 pieces' decays are read at once, by lanes,
// and the states of several are in flight together; a block of the scan would add them one after
// the other, with registers for a few loads, while its pipeline stands.
// One block a unit and segment; every warp makes the factors for itself. Sums in a fixed order.
// Cost: 64 N fp32 a unit and segment written, and read once for each piece that is remembered.

#include "kernels/ssd/ssd_device.cuh"

namespace stowage::kernels::ssd {
namespace {

constexpr int kThreads = 256;
constexpr unsigned kAll = 0xFFFFFFFFU;

/// The factors of the 32 pieces before a border, nearest first: lane l has that of the l-th.
struct Factors {
  float mine;    ///< of the lane's piece
  float beyond;  ///< of what lies before all 32, in the last lane
  int count;     ///< pieces that add something
  bool initial;  ///< the initial state is next, with lane `count`'s factor
  bool more;     ///< pieces beyond may add something too

  __device__ __forceinline__ Factors(const EnterParameters& p, int head, int border, float decay,
                                     int lane) {
    const int at = border - lane;  // border between the lane's piece and the one after it
    const bool inside = at > 0;
    const bool begins = inside && p.spans[piece_begin(p.sizes, at) * kChunk].start != 0;
    const float across = inside ? p.through[(at - 1) * p.sizes.heads + head] : -1;
    float product = fmaxf(across, 0);
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const float before = __shfl_up_sync(kAll, product, step);
      if (lane >= step) product *= before;
    }
    beyond = decay * product;
    const float before = __shfl_up_sync(kAll, beyond, 1);
    mine = lane == 0 ? decay : before;
    const unsigned stops = __ballot_sync(kAll, begins || across < 0 || mine == 0);
    count = stops == 0 ? 32 : __ffs(static_cast<int>(stops)) - 1;
    more = stops == 0;
    initial = __shfl_sync(kAll, at == 0 && mine != 0, count % 32) && !more;
  }
};

template <int kState, int kColumns>
__global__ void __launch_bounds__(kThreads) enter(const EnterParameters p) {
  constexpr int kQuads = kPart * kState / 4 / kThreads;  // of a thread, four values each
  griddepcontrol_launch_dependents();
  griddepcontrol_wait();
  const int unit = static_cast<int>(blockIdx.x), segment = static_cast<int>(blockIdx.y);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t size = static_cast<std::int64_t>(kPart) * kState;
  float4 sum[kQuads] = {};
  const auto add = [&](int i, float factor, const float4& v) {
    sum[i].x += factor * v.x;
    sum[i].y += factor * v.y;
    sum[i].z += factor * v.z;
    sum[i].w += factor * v.w;
  };
  const int head = head_of<kColumns>(p.sizes, unit, static_cast<int>(threadIdx.x % 128) / 32);
  float decay = 1;
  bool more = true;
  for (int border = segment * p.sizes.pieces; more; border -= 32) {
    const Factors factors(p, head, border, decay, lane);
#pragma unroll 2
    for (int k = 0; k < factors.count; ++k) {
      const float factor = __shfl_sync(kAll, factors.mine, k);
      const std::int64_t index = static_cast<std::int64_t>(border - 1 - k) * p.sizes.units + unit;
      const auto* partial = reinterpret_cast<const float4*>(p.partials + index * size);
#pragma unroll
      for (int i = 0; i < kQuads; ++i) add(i, factor, partial[i * kThreads + threadIdx.x]);
    }
    const float last = __shfl_sync(kAll, factors.mine, factors.count % 32);
    if (factors.initial && p.initial_state != nullptr) {
      const float* matrix = p.initial_state + unit * size;
#pragma unroll
      for (int i = 0; i < kQuads; ++i) {  // the fragment's columns, as of store_matrix
        const int quad = i * kThreads + static_cast<int>(threadIdx.x);
        const int row = quad % 128 / 32 * 16 + lane / 4;
        const float* from = matrix + row * kState + quad / 128 * 8 + lane % 4 * 2;
        const float2 upper = *reinterpret_cast<const float2*>(from);
        const float2 lower = *reinterpret_cast<const float2*>(from + 8 * kState);
        add(i, last, make_float4(upper.x, upper.y, lower.x, lower.y));
      }
    }
    decay = __shfl_sync(kAll, factors.beyond, 31);
    more = factors.more && decay != 0;
  }
  auto* to = reinterpret_cast<float4*>(
      p.entering + (static_cast<std::int64_t>(segment) * p.sizes.units + unit) * size);
#pragma unroll
  for (int i = 0; i < kQuads; ++i) to[i * kThreads + threadIdx.x] = sum[i];
}

}  // namespace

cudaError_t launch_enter(const EnterParameters& parameters, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(parameters.sizes.units),
                  static_cast<unsigned>(parameters.sizes.segments));
  return with_kernel(parameters, [&]<int kState, int kColumns>() {
    return launch_dependent(enter<kState, kColumns>, grid, kThreads, 0, stream, parameters);
  });
}

}  // namespace stowage::kernels::ssd
