// What a segment of a scan leaves at its edge, from zero: the state after its last token, or the
// adjoint before its first, and the decay over it. Any sizes, fp32 arithmetic, storage S in fp32 or
// bf16.
//
//   state:   sum over tokens of (decay to the end) dt_j B_j X_j^T
//   adjoint: sum over tokens of (decay from the beginning) C_i dY_i^T
//
// (Mamba-2, arXiv 2405.21060, section 8.2.) A block owns some columns of one head's state and walks
// over chunks of 32 tokens from the edge away, nearest first, so it ends where nothing reaches the
// edge any more: at the border of a document, or where the decay is 0 in fp32. No workspace, no
// tensor cores. Deterministic: one owner and one order for each sum.

#include <cmath>

#include "kernels/ssd/ssd_simple.cuh"

namespace stowage::kernels::ssd {
namespace simple {
namespace {

constexpr int kColumns = 16;  // of X or dY that a block owns

template <class S, bool kAdjoint>
__global__ void __launch_bounds__(kThreads)
    segment_kernel(const SimpleScan p, const SimpleMatrix v, float* states, float* decays) {
  extern __shared__ float shared[];
  __shared__ Steps steps;
  Room room{shared};
  const Tile u_tile = room.tile(kQ, p.state), v_tile = room.tile(kQ, kColumns);
  const Tile sums = room.tile(p.state, kColumns);
  const int first = static_cast<int>(blockIdx.x) * kColumns;
  const int columns = min(kColumns, p.head_dim - first), head = static_cast<int>(blockIdx.y);
  const int group = head / (p.heads / p.groups), chunks = (p.tokens + kQ - 1) / kQ;
  multiply(
      p.state, columns, 0, [](int, int) { return 0.0F; }, [](int, int) { return 0.0F; },
      [&](int n, int column, float zero) { sums(n, column) = zero; });
  float reach = 1;  // decay between the chunk and the edge
  for (int i = 0; i < chunks && reach != 0; ++i) {
    const int chunk = kAdjoint ? i : chunks - 1 - i;
    make_steps<S>(p, chunk, head, steps);
    load_tile<S>(u_tile, kAdjoint ? p.c : p.b, group * p.state, p.state, chunk, p.tokens);
    load_tile<S>(v_tile, v, head * p.head_dim + first, columns, chunk, p.tokens);
    __syncthreads();
    multiply(
        p.state, columns, kQ,
        [&](int n, int t) {
          return u_tile(t, n) * (kAdjoint ? steps.in[t] : steps.dt[t] * steps.out[t]);
        },
        [&](int t, int column) { return v_tile(t, column); },
        [&](int n, int column, float sum) { sums(n, column) += reach * sum; });
    reach *= steps.in[kQ - 1];
    __syncthreads();
  }
  for (int at = static_cast<int>(threadIdx.x); at < columns * p.state; at += kThreads) {
    const int column = at / p.state, n = at % p.state;
    const std::int64_t row = static_cast<std::int64_t>(head) * p.head_dim + first + column;
    states[row * p.state + n] = sums(n, column);
  }
  if (first == 0 && threadIdx.x == 0) decays[head] = reach;
}

template <class S, bool kAdjoint>
cudaError_t leave(const SimpleScan& p, const SimpleMatrix& v, float* to, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((p.head_dim + kColumns - 1) / kColumns),
                  static_cast<unsigned>(p.heads));
  const std::int64_t floats =
      tile_floats(kQ, p.state) + tile_floats(kQ, kColumns) + tile_floats(p.state, kColumns);
  float* decays = to + static_cast<std::int64_t>(p.heads) * p.head_dim * p.state;
  return launch(segment_kernel<S, kAdjoint>, grid, floats, stream, p, v, to, decays);
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
