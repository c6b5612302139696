// What a segment of a scan leaves at its edge, from zero: the state after its last token, or the
// adjoint before its first, and the decay over it. Any sizes, fp32 arithmetic, storage S in fp32 or
// bf16.
//
//   state:   sum over tokens of (decay to the end) dt_j B_j X_j^T
//   adjoint: sum over tokens of (decay from the beginning) C_i dY_i^T
//
// (Mamba-2, arXiv 2405.21060, section 8.2.) A cluster of blocks makes a tile of one head's state,
// each block from a stretch of the tokens: it walks over chunks of 32 of them away from the edge,
// with its sums in registers, 4 x 4 a thread, until nothing reaches the stretch's own edge any
// more: at the border of a document, or where the decay is 0 in fp32. The blocks' sums are then
// added up, nearest first, each times the decay of the stretches before. No workspace, no tensor
// cores. Deterministic: one owner and one order for each sum.

#include <cmath>

#include "kernels/hopper/cluster.cuh"
#include "kernels/ssd/ssd_simple.cuh"

namespace stowage::kernels::ssd {
namespace simple {
namespace {

constexpr int kStretches = 8;           // blocks of a cluster: the most that all GPUs allow
constexpr int kN = 128, kColumns = 32;  // of the state, and of X or dY, that a block owns
constexpr int kEach = 4;                // of both, a thread
constexpr int kUPitch = kN + 4, kVPitch = kColumns + 4;  // whole float4, and no two rows one bank
static_assert(kThreads == kN / kEach * kColumns / kEach);

// Both tiles of a chunk, or, when all are done, the sums by column and n.
struct Tiles {
  float u[kQ * kUPitch];  // B or C
  float v[kQ * kVPitch];  // X or dY, times what decays and steps make of its token
};
static_assert(sizeof(Tiles::u) >= sizeof(float) * kN * kColumns);

// By lane of warp 0: a token's step, and the decay between it and the chunk's near edge.
struct Token {
  float dt, reach, through;  // through: the decay over the chunk, the same in all lanes
};

template <class S, bool kAdjoint>
__device__ Token token_of(const SimpleScan& p, int chunk, int head) {
  const int lane = static_cast<int>(threadIdx.x);
  float dt, decay;
  step_of<S>(p, chunk * kQ + lane, head, dt, decay);
  // Products from the near edge on: of the adjoint with the token's decay, of the state without.
  float product = decay;
#pragma unroll
  for (int step = 1; step < kQ; step *= 2) {
    const float other =
        kAdjoint ? __shfl_up_sync(~0U, product, step) : __shfl_down_sync(~0U, product, step);
    if (kAdjoint ? lane >= step : lane + step < kQ) product *= other;
  }
  const float through = __shfl_sync(~0U, product, kAdjoint ? kQ - 1 : 0);
  if (kAdjoint) return {dt, product, through};
  const float beyond = __shfl_down_sync(~0U, product, 1);
  return {dt, lane == kQ - 1 ? 1 : beyond, through};
}

// Four elements of a row from `column` on; those beyond the row's `columns` are 0.
template <class S>
__device__ float4 four(const SimpleMatrix& from, std::int64_t row, int first, int column,
                       int columns) {
  const std::int64_t at = row * from.stride + first + column;
  float values[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    values[i] = column + i < columns ? element<S>(from.data, at + i) : 0;
  return {values[0], values[1], values[2], values[3]};
}
// The same where four bf16 lie at once in 8 bytes.
__device__ inline float4 four_at_once(const SimpleMatrix& from, std::int64_t row, int first,
                                      int column) {
  const auto* at =
      static_cast<const __nv_bfloat16*>(from.data) + row * from.stride + first + column;
  const uint2 bits = *reinterpret_cast<const uint2*>(at);
  return {__uint_as_float(bits.x << 16), __uint_as_float(bits.x & 0xFFFF0000U),
          __uint_as_float(bits.y << 16), __uint_as_float(bits.y & 0xFFFF0000U)};
}

template <class S>
__device__ bool in_fours(const SimpleMatrix& from, int first, int columns) {
  return sizeof(S) == 2 && columns % kEach == 0 && first % kEach == 0 && from.stride % kEach == 0 &&
         reinterpret_cast<std::uintptr_t>(from.data) % 8 == 0;
}

// Columns of a chunk's rows, times the row's factor; what lies beyond the tokens or columns is 0.
template <class S, int kWide, int kPitch>
__device__ void load_tile(float* to, const SimpleMatrix& from, int first, int columns, int chunk,
                          int tokens, const float* factors) {
  const bool at_once = in_fours<S>(from, first, columns);
#pragma unroll
  for (int i = 0; i < kQ * kWide / kEach / kThreads; ++i) {
    const int at = static_cast<int>(threadIdx.x) + i * kThreads;
    const int row = at / (kWide / kEach), column = at % (kWide / kEach) * kEach;
    const std::int64_t t = static_cast<std::int64_t>(chunk) * kQ + row;
    float4 values{0, 0, 0, 0};
    if (t < tokens && column < columns)
      values =
          at_once ? four_at_once(from, t, first, column) : four<S>(from, t, first, column, columns);
    if (factors != nullptr) {
      values.x *= factors[row], values.y *= factors[row];
      values.z *= factors[row], values.w *= factors[row];
    }
    *reinterpret_cast<float4*>(to + row * kPitch + column) = values;
  }
}

// grid (stretches x tiles of columns and n, heads)
template <class S, bool kAdjoint>
__global__ void __cluster_dims__(kStretches, 1, 1) __launch_bounds__(kThreads)
    segment_kernel(const SimpleScan p, const SimpleMatrix v, float* states, float* decays) {
  __shared__ alignas(16) Tiles room;
  __shared__ float factors[kQ], through, reached;
  const int stretch = static_cast<int>(hopper::cluster_block_rank());
  const int tile = static_cast<int>(blockIdx.x) / kStretches, head = static_cast<int>(blockIdx.y);
  const int tiles_n = (p.state + kN - 1) / kN;
  const int first_n = tile % tiles_n * kN, first_column = tile / tiles_n * kColumns;
  const int ns = min(kN, p.state - first_n), columns = min(kColumns, p.head_dim - first_column);
  const int group = head / (p.heads / p.groups), chunks = (p.tokens + kQ - 1) / kQ;
  const int each = (chunks + kStretches - 1) / kStretches;
  const int n = static_cast<int>(threadIdx.x) % (kN / kEach) * kEach;
  const int column = static_cast<int>(threadIdx.x) / (kN / kEach) * kEach;
  float sums[kEach][kEach] = {};  // by column and n
  float reach = 1;                // decay between the chunk and the stretch's near edge
  for (int i = stretch * each; i < min(chunks, (stretch + 1) * each) && reach != 0; ++i) {
    const int chunk = kAdjoint ? i : chunks - 1 - i;
    if (threadIdx.x < kQ) {
      const Token token = token_of<S, kAdjoint>(p, chunk, head);
      factors[threadIdx.x] = reach * token.reach * (kAdjoint ? 1 : token.dt);
      if (threadIdx.x == 0) through = token.through;
    }
    load_tile<S, kN, kUPitch>(room.u, kAdjoint ? p.c : p.b, group * p.state + first_n, ns, chunk,
                              p.tokens, nullptr);
    __syncthreads();
    load_tile<S, kColumns, kVPitch>(room.v, v, head * p.head_dim + first_column, columns, chunk,
                                    p.tokens, factors);
    reach *= through;
    __syncthreads();
#pragma unroll 8
    for (int t = 0; t < kQ; ++t) {
      const float4 u4 = *reinterpret_cast<const float4*>(room.u + t * kUPitch + n);
      const float4 v4 = *reinterpret_cast<const float4*>(room.v + t * kVPitch + column);
      const float us[kEach] = {u4.x, u4.y, u4.z, u4.w}, vs[kEach] = {v4.x, v4.y, v4.z, v4.w};
#pragma unroll
      for (int c = 0; c < kEach; ++c)
#pragma unroll
        for (int m = 0; m < kEach; ++m) sums[c][m] = fmaf(us[m], vs[c], sums[c][m]);
    }
    __syncthreads();
  }
  // All of the cluster's blocks add up a share of the tile.
#pragma unroll
  for (int c = 0; c < kEach; ++c)
    *reinterpret_cast<float4*>(room.u + (column + c) * kN + n) = {sums[c][0], sums[c][1],
                                                                  sums[c][2], sums[c][3]};
  if (threadIdx.x == 0) reached = reach;
  hopper::cluster_arrive();
  hopper::cluster_wait();
  float reaches[kStretches];
#pragma unroll
  for (int s = 0; s < kStretches; ++s) reaches[s] = hopper::ld_shared_cluster(&reached, s);
  for (int at = stretch * kThreads + static_cast<int>(threadIdx.x); at < kN * kColumns;
       at += kStretches * kThreads) {
    float sum = 0, before = 1;
#pragma unroll
    for (int s = 0; s < kStretches; ++s) {
      sum = fmaf(before, hopper::ld_shared_cluster(room.u + at, s), sum);
      before *= reaches[s];
    }
    const int c = at / kN, m = at % kN;
    const std::int64_t row = static_cast<std::int64_t>(head) * p.head_dim + first_column + c;
    if (c < columns && m < ns) states[row * p.state + first_n + m] = sum;
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    float all = 1;
    for (const float one : reaches) all *= one;
    decays[head] = all;
  }
  hopper::cluster_arrive();  // no block leaves while others read its sums
  hopper::cluster_wait();
}

template <class S, bool kAdjoint>
cudaError_t leave(const SimpleScan& p, const SimpleMatrix& v, float* to, cudaStream_t stream) {
  const int tiles = (p.state + kN - 1) / kN * ((p.head_dim + kColumns - 1) / kColumns);
  const dim3 grid(static_cast<unsigned>(kStretches * tiles), static_cast<unsigned>(p.heads));
  float* decays = to + static_cast<std::int64_t>(p.heads) * p.head_dim * p.state;
  segment_kernel<S, kAdjoint><<<grid, kThreads, 0, stream>>>(p, v, to, decays);
  return cudaGetLastError();
}

}  // namespace
}  // namespace simple

cudaError_t launch_segment_state(const SimpleScan& scan, float* to, cudaStream_t stream) {
  return scan.bf16 ? simple::leave<__nv_bfloat16, false>(scan, scan.x, to, stream)
                   : simple::leave<float, false>(scan, scan.x, to, stream);
}

cudaError_t launch_segment_adjoint(const SimpleScan& scan, const SimpleMatrix& dy, float* to,
                                   cudaStream_t stream) {
  return scan.bf16 ? simple::leave<__nv_bfloat16, true>(scan, dy, to, stream)
                   : simple::leave<float, true>(scan, dy, to, stream);
}

}  // namespace stowage::kernels::ssd
