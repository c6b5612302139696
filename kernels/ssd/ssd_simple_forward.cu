// Forward of the scan for any sizes, fp32 arithmetic, storage S in fp32 or bf16.
//
//   local_states: what each chunk of 32 tokens adds to the state, one block a (chunk, head)
//   scan_states:  the state before each chunk, a thread an element, chunks in order
//   outputs:      Y = in_i C_i S + sum_{j <= i} (C_i B_j) L_ij dt_j X_j + D X
//
// (Mamba-2, arXiv 2405.21060, section 6.) No tensor cores: about a tenth of the fp32 rate.
// Workspace: a state a chunk and head, P N / 32 floats a token and head. Deterministic.
// Limits: shared memory bounds P + N near 800; next: 64 x 64 register tiles for the products.

#include "kernels/ssd/ssd_simple.cuh"

namespace stowage::kernels::ssd {
namespace simple {
namespace {

template <class S>
__global__ void __launch_bounds__(kThreads)
    outputs(const SimpleScan p, const SimpleMatrix y, float* states) {
  extern __shared__ float shared[];
  __shared__ Steps steps;
  Room room{shared};
  const Tile x = room.tile(kQ, p.head_dim), b = room.tile(kQ, p.state), c = room.tile(kQ, p.state);
  const Tile m = room.tile(kQ, kQ);
  const int chunk = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
  const int group = head / (p.heads / p.groups);
  make_steps<S>(p, chunk, head, steps);
  make_decays(steps, m);
  load_tile<S>(x, p.x, head * p.head_dim, p.head_dim, chunk, p.tokens);
  load_tile<S>(b, p.b, group * p.state, p.state, chunk, p.tokens);
  load_tile<S>(c, p.c, group * p.state, p.state, chunk, p.tokens);
  __syncthreads();
  multiply(
      kQ, kQ, p.state, [&](int i, int n) { return c(i, n); }, [&](int n, int j) { return b(j, n); },
      [&](int i, int j, float sum) { m(i, j) *= sum * steps.dt[j]; });
  const float* state = state_of(p, states, chunk, head);
  const float skip = element<S>(p.d, head);
  __syncthreads();
  const int depth = p.state + kQ;  // the state's columns, then the chunk's tokens
  multiply(
      kQ, p.head_dim, depth,
      [&](int i, int k) { return k < p.state ? steps.in[i] * c(i, k) : m(i, k - p.state); },
      [&](int k, int column) {
        return k < p.state ? state[k * p.head_dim + column] : x(k - p.state, column);
      },
      [&](int i, int column, float sum) {
        const int t = chunk * kQ + i;
        if (t < p.tokens) store<S>(y, t, head * p.head_dim + column, sum + skip * x(i, column));
      });
}

template <class S>
cudaError_t forward(const SimpleScan& p, const SimpleResults& results, cudaStream_t stream) {
  float* states = p.workspace;
  float* through = states + p.states();
  if (p.tokens > 0) {
    const cudaError_t status = launch_local_states<S>(p, p.x, false, states, through, stream);
    if (status != cudaSuccess) return status;
  }
  scan_states<false><<<scan_blocks(p), kThreads, 0, stream>>>(
      p, states, through, {p.initial_state, results.final_state, results.total_decay});
  if (p.tokens == 0) return cudaGetLastError();
  const dim3 grid(static_cast<unsigned>(p.chunks()), static_cast<unsigned>(p.heads));
  const std::int64_t floats =
      tile_floats(kQ, p.head_dim) + 2 * tile_floats(kQ, p.state) + tile_floats(kQ, kQ);
  return launch(outputs<S>, grid, floats, stream, p, results.y, states);
}

}  // namespace
}  // namespace simple

cudaError_t launch_simple_forward(const SimpleScan& scan, const SimpleResults& results,
                                  cudaStream_t stream) {
  return scan.bf16 ? simple::forward<__nv_bfloat16>(scan, results, stream)
                   : simple::forward<float>(scan, results, stream);
}

}  // namespace stowage::kernels::ssd
