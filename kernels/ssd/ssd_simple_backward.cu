// Backward of the scan for any sizes, fp32 arithmetic, storage S in fp32 or bf16.
//
// The states before and their adjoints after all chunks of 32 tokens come first, as in the forward;
// then one block a (chunk, group) takes the group's heads in turn, by the formulas that head
// ssd_gradient.cu. dB and dC are summed over the heads in the workspace by one thread an element;
// the gradient of a decay is summed over the pairs of tokens around it, so nothing cancels.
// Workspace: two states a chunk and head, 2 P N / 32 floats a token and head, and 2 N floats a
// token and group. Deterministic.
// Limits: no tensor cores; shared memory bounds P N near 20 000. A group is one block a chunk, so
// short sequences with few groups leave the GPU mostly idle; next: heads in parallel.

#include <algorithm>

#include "kernels/ssd/ssd_simple.cuh"

namespace stowage::kernels::ssd {
namespace simple {
namespace {

/// What a block of `gradient` holds in shared memory.
struct Shared {
  Tile x, dy, b, c, state, product, l, cb, dcb, e;
  __device__ Shared(const SimpleScan& p, float* memory) {
    Room room{memory};
    x = room.tile(kQ, p.head_dim);
    dy = room.tile(kQ, p.head_dim);
    b = room.tile(kQ, p.state);
    c = room.tile(kQ, p.state);
    state = room.tile(p.state, p.head_dim);
    product = room.tile(kQ, max(p.state, p.head_dim));
    l = room.tile(kQ, kQ);
    cb = room.tile(kQ, kQ);
    dcb = room.tile(kQ, kQ);
    e = room.tile(kQ, kQ);
  }
};

/// By token: C_i (S dY_i) in, X_j (B_j G) out, dY X, sum over pairs around t, sum over i of E_ij.
struct Vectors {
  float in[kQ], out[kQ], skip[kQ], around[kQ], column[kQ], halves[kThreads / 32];
};

/// Loads an adjoint over the state it is multiplied with; returns the thread's share of <G, S>.
__device__ float swap_state(const Tile& tile, const float* adjoint, int rows, int columns) {
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < rows * columns; i += kThreads) {
    float& s = tile(i / columns, i % columns);
    sum += s * adjoint[i];
    s = adjoint[i];
  }
  return sum;
}

/// around[t] = sum of dt_j E_ij over i >= t > j; column[j] = sum over i of E_ij. Eight threads a
/// token.
__device__ void sum_pairs(const Tile& e, const Steps& steps, Vectors& v) {
  const int t = static_cast<int>(threadIdx.x) / 8, part = static_cast<int>(threadIdx.x) % 8;
  float around = 0, column = 0;
  for (int i = t + part; i < kQ; i += 8) {
    column += e(i, t);
    for (int j = 0; j < t; ++j) around += steps.dt[j] * e(i, j);
  }
#pragma unroll
  for (int mask = 4; mask > 0; mask /= 2) {
    around += __shfl_xor_sync(0xFFFFFFFFU, around, mask);
    column += __shfl_xor_sync(0xFFFFFFFFU, column, mask);
  }
  if (part != 0) return;
  v.around[t] = around;
  v.column[t] = column;
}

/// The gradient of dt of one head's tokens, by warp 0, a lane a token; the chunk's shares of sums.
template <class S>
__device__ void finish_steps(const SimpleScan& p, const SimpleGradients& g, const Steps& steps,
                             const Vectors& v, int chunk, int head, float* sums) {
  constexpr unsigned kAll = 0xFFFFFFFFU;
  const int lane = static_cast<int>(threadIdx.x), t = chunk * kQ + lane;
  float through = 0;
  for (const float half : v.halves) through += half;
  float suffix = steps.in[lane] * v.in[lane];
  const float out = steps.out[lane] * v.out[lane];
  float prefix = lane == 0 ? 0 : steps.dt[lane - 1] * steps.out[lane - 1] * v.out[lane - 1];
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const float after = __shfl_down_sync(kAll, suffix, step);
    const float before = __shfl_up_sync(kAll, prefix, step);
    if (lane + step < 32) suffix += after;
    if (lane >= step) prefix += before;
  }
  // where a document begins the decay is the constant 0; all shares but these are 0 by themselves
  const float da = steps.in[kQ - 1] * through + suffix + prefix + v.around[lane];
  float raw_gradient = 0;
  if (t < p.tokens) {
    const float rate = -expf(element<S>(p.a_log, head));
    const float raw = element<S>(p.dt.data, t * p.dt.stride + head) + element<S>(p.dt_bias, head);
    const float unclamped = softplus(raw);
    const bool inside = unclamped >= p.dt_min && unclamped <= p.dt_max;
    const float dstep = rate * da + v.column[lane] + out;
    raw_gradient = inside ? dstep / (1 + expf(-raw)) : 0;
    store<S>(g.ddt, t, head, raw_gradient);
  }
  float shares[kSums] = {steps.dt[lane] * da, v.skip[lane], raw_gradient};
#pragma unroll
  for (int k = 0; k < kSums; ++k) {
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) {
      shares[k] += __shfl_xor_sync(kAll, shares[k], mask);
    }
    if (lane == 0)
      sums[(static_cast<std::int64_t>(chunk) * p.heads + head) * kSums + k] = shares[k];
  }
}

/// Where the shares of heads in dB and dC are summed: (chunks 32, G N) each.
struct Sums {
  float* b;
  float* c;
};

/// One head: dX, its shares of dB, dC, dCB.
template <class S>
__device__ void head_gradient(const SimpleScan& p, const SimpleGradients& g, const Shared& s,
                              Steps& steps, Vectors& v, const float* state, const float* adjoint,
                              const Sums& sums, int chunk, int head, bool first, float* totals) {
  const int columns = p.head_dim;
  make_steps<S>(p, chunk, head, steps);
  make_decays(steps, s.l);
  load_tile<S>(s.x, p.x, head * columns, columns, chunk, p.tokens);
  load_tile<S>(s.dy, g.dy, head * columns, columns, chunk, p.tokens);
  for (int i = static_cast<int>(threadIdx.x); i < p.state * columns; i += kThreads) {
    s.state(i / columns, i % columns) = state[i];
  }
  __syncthreads();
  const auto of = [](const Tile& tile) {
    return [tile](int i, int k) -> float { return tile(i, k); };
  };
  const auto transposed = [](const Tile& tile) {
    return [tile](int k, int j) -> float { return tile(j, k); };
  };
  const auto add = [&](float* to, int i, int n, float value) {
    float& sum = to[i * p.groups * p.state + n];
    sum = first ? value : sum + value;
  };
  multiply(kQ, p.state, columns, of(s.dy), transposed(s.state), [&](int i, int n, float sum) {
    s.product(i, n) = sum;
    add(sums.c, i, n, steps.in[i] * sum);
  });
  row_products(s.x, s.dy, columns, v.skip);
  __syncthreads();
  row_products(s.product, s.c, p.state, v.in);
  float half = swap_state(s.state, adjoint, p.state, columns);
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) half += __shfl_xor_sync(0xFFFFFFFFU, half, mask);
  if (threadIdx.x % 32 == 0) v.halves[threadIdx.x / 32] = half;
  __syncthreads();
  multiply(kQ, p.state, columns, of(s.x), transposed(s.state),
           [&](int j, int n, float sum) { add(sums.b, j, n, steps.dt[j] * steps.out[j] * sum); });
  multiply(kQ, columns, p.state, of(s.b), of(s.state),
           [&](int j, int column, float sum) { s.product(j, column) = sum; });
  multiply(kQ, kQ, columns, of(s.dy), transposed(s.x), [&](int i, int j, float sum) {
    const float l = s.l(i, j), m = s.cb(i, j) * l;
    s.dcb(i, j) += sum * l * steps.dt[j];
    s.e(i, j) = sum * m;
    s.l(i, j) = m;
  });
  __syncthreads();
  row_products(s.product, s.x, columns, v.out);
  sum_pairs(s.e, steps, v);
  const float skip = element<S>(p.d, head);
  multiply(kQ, columns, kQ, transposed(s.l), of(s.dy), [&](int j, int column, float sum) {
    const int t = chunk * kQ + j;
    if (t >= p.tokens) return;
    const float inside = steps.dt[j] * (steps.out[j] * s.product(j, column) + sum);
    store<S>(g.dx, t, head * columns + column, inside + skip * s.dy(j, column));
  });
  __syncthreads();
  if (threadIdx.x < kQ) finish_steps<S>(p, g, steps, v, chunk, head, totals);
  __syncthreads();
}

template <class S>
__global__ void __launch_bounds__(kThreads)
    gradient(const SimpleScan p, const SimpleGradients g, float* states, float* adjoints,
             const Sums all, float* totals) {
  extern __shared__ float memory[];
  __shared__ Steps steps;
  __shared__ Vectors vectors;
  const Shared s(p, memory);
  const int chunk = static_cast<int>(blockIdx.x), group = static_cast<int>(blockIdx.y);
  const std::int64_t offset = (static_cast<std::int64_t>(chunk) * kQ * p.groups + group) * p.state;
  const Sums sums{all.b + offset, all.c + offset};
  load_tile<S>(s.b, p.b, group * p.state, p.state, chunk, p.tokens);
  load_tile<S>(s.c, p.c, group * p.state, p.state, chunk, p.tokens);
  for (int i = static_cast<int>(threadIdx.x); i < kQ * kQ; i += kThreads) s.dcb(i / kQ, i % kQ) = 0;
  __syncthreads();
  multiply(
      kQ, kQ, p.state, [&](int i, int n) { return s.c(i, n); },
      [&](int n, int j) { return s.b(j, n); }, [&](int i, int j, float sum) { s.cb(i, j) = sum; });
  const int heads = p.heads / p.groups;
  for (int h = 0; h < heads; ++h) {
    const int head = group * heads + h;
    head_gradient<S>(p, g, s, steps, vectors, state_of(p, states, chunk, head),
                     state_of(p, adjoints, chunk, head), sums, chunk, head, h == 0, totals);
  }
  const auto write = [&](const SimpleMatrix& to, const float* from) {
    return [&p, to, from, chunk, group](int i, int n, float sum) {
      const int t = chunk * kQ + i;
      if (t < p.tokens)
        store<S>(to, t, group * p.state + n, sum + from[i * p.groups * p.state + n]);
    };
  };
  multiply(
      kQ, p.state, kQ, [&](int j, int i) { return s.dcb(i, j); },
      [&](int i, int n) { return s.c(i, n); }, write(g.db, sums.b));
  multiply(
      kQ, p.state, kQ, [&](int i, int j) { return s.dcb(i, j); },
      [&](int j, int n) { return s.b(j, n); }, write(g.dc, sums.c));
}

/// Adds the chunks' shares in order, a thread a head and sum.
template <class S>
__global__ void add_chunks(const SimpleScan p, const SimpleGradients g, const float* totals) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= p.heads * kSums) return;
  const int head = i / kSums, which = i % kSums, chunks = (p.tokens + kQ - 1) / kQ;
  float sum = 0;
#pragma unroll 8
  for (int chunk = 0; chunk < chunks; ++chunk) {
    sum += totals[static_cast<std::int64_t>(chunk) * p.heads * kSums + i];
  }
  if (which == 0) sum *= -expf(element<S>(p.a_log, head));
  float* to = (which == 0 ? g.da_log : which == 1 ? g.dd : g.ddt_bias) + head;
  *to = g.accumulate ? *to + sum : sum;
}

std::int64_t shared_floats(int head_dim, int state) {
  return 2 * tile_floats(kQ, head_dim) + 2 * tile_floats(kQ, state) + tile_floats(state, head_dim) +
         tile_floats(kQ, std::max(state, head_dim)) + 4 * tile_floats(kQ, kQ);
}

template <class S>
cudaError_t backward(const SimpleScan& p, const SimpleGradients& g, cudaStream_t stream) {
  const std::int64_t chunks = p.chunks();
  float* states = p.workspace;
  float* adjoints = states + p.states();
  float* through = adjoints + p.states();
  float* totals = through + chunks * p.heads;
  Sums sums{};
  sums.b = totals + chunks * p.heads * kSums;
  sums.c = sums.b + chunks * kQ * p.groups * p.state;
  if (chunks > 0) {
    cudaError_t status = launch_local_states<S>(p, p.x, false, states, through, stream);
    if (status != cudaSuccess) return status;
    status = launch_local_states<S>(p, g.dy, true, adjoints, nullptr, stream);
    if (status != cudaSuccess) return status;
    scan_states<false><<<scan_blocks(p), kThreads, 0, stream>>>(
        p, states, through, {p.initial_state, nullptr, nullptr});
  }
  scan_states<true><<<scan_blocks(p), kThreads, 0, stream>>>(
      p, adjoints, through, {g.dfinal_state, g.dinitial_state, nullptr});
  if (chunks > 0) {
    const dim3 grid(static_cast<unsigned>(chunks), static_cast<unsigned>(p.groups));
    const cudaError_t status = launch(gradient<S>, grid, shared_floats(p.head_dim, p.state), stream,
                                      p, g, states, adjoints, sums, totals);
    if (status != cudaSuccess) return status;
  }
  const int threads = p.heads * kSums;
  add_chunks<S><<<static_cast<unsigned>((threads + 127) / 128), 128, 0, stream>>>(p, g, totals);
  return cudaGetLastError();
}

}  // namespace
}  // namespace simple

std::int64_t simple_shared_bytes(int head_dim, int state) {
  return simple::shared_floats(head_dim, state) * static_cast<std::int64_t>(sizeof(float)) +
         static_cast<std::int64_t>(sizeof(simple::Steps) + sizeof(simple::Vectors));
}

cudaError_t launch_simple_backward(const SimpleScan& scan, const SimpleGradients& gradients,
                                   cudaStream_t stream) {
  return scan.bf16 ? simple::backward<__nv_bfloat16>(scan, gradients, stream)
                   : simple::backward<float>(scan, gradients, stream);
}

}  // namespace stowage::kernels::ssd
