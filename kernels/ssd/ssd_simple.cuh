#pragma once

#include <cuda_bf16.h>

#include "kernels/ssd/ssd_simple.hpp"

/// What the kernels of the simple scan share. Tiles lie in shared memory as fp32 with one column of
/// padding, so that walks along rows and along columns are both free of bank conflicts. States are
/// kept transposed, (N, P). A document boundary is a decay of 0, and decays between tokens are
/// running products: nothing overflows and nothing cancels.
namespace stowage::kernels::ssd::simple {

inline constexpr int kQ = kSimpleChunk;
inline constexpr int kThreads = 256;
inline constexpr int kSums = kSimpleSums;

/// A matrix in shared memory.
struct Tile {
  float* data;
  int pitch;
  __device__ float& operator()(int row, int column) const { return data[row * pitch + column]; }
};

/// Hands out tiles of the block's shared memory.
struct Room {
  float* next;
  __device__ Tile tile(int rows, int columns) {
    const Tile taken{next, columns + 1};
    next += rows * (columns + 1);
    return taken;
  }
};
constexpr std::int64_t tile_floats(int rows, int columns) {
  return static_cast<std::int64_t>(rows) * (columns + 1);
}

/// By token of a chunk: step size, decay, decay from the chunk's entry, decay to its exit.
struct Steps {
  float dt[kQ], decay[kQ], in[kQ], out[kQ];
};

__device__ inline float load(const void* values, std::int64_t i, float) {
  return static_cast<const float*>(values)[i];
}
__device__ inline float load(const void* values, std::int64_t i, __nv_bfloat16) {
  return __bfloat162float(static_cast<const __nv_bfloat16*>(values)[i]);
}
template <class S>
__device__ float element(const void* values, std::int64_t i) {
  return load(values, i, S{});
}
template <class S>
__device__ void store(const SimpleMatrix& to, std::int64_t row, int column, float value) {
  static_cast<S*>(const_cast<void*>(to.data))[row * to.stride + column] = static_cast<S>(value);
}

__device__ inline float softplus(float x) { return fmaxf(x, 0) + log1pf(expf(-fabsf(x))); }

/// The step size and decay of a token and head; beyond the end 0 and 1.
template <class S>
__device__ void step_of(const SimpleScan& p, int t, int head, float& dt, float& decay) {
  dt = 0, decay = 1;
  if (t >= p.tokens) return;
  const float raw = element<S>(p.dt.data, t * p.dt.stride + head);
  dt = softplus(raw + element<S>(p.dt_bias, head));
  dt = fminf(fmaxf(dt, p.dt_min), p.dt_max);
  const bool begins = t > 0 && p.seq_idx != nullptr && p.seq_idx[t] != p.seq_idx[t - 1];
  decay = begins ? 0 : expf(-dt * expf(element<S>(p.a_log, head)));
}

/// The decays of a chunk and head; tokens beyond the end have step 0 and decay 1. Warp 0 works, the
/// block waits.
template <class S>
__device__ void make_steps(const SimpleScan& p, int chunk, int head, Steps& steps) {
  if (threadIdx.x < kQ) {
    const int lane = static_cast<int>(threadIdx.x);
    float dt, decay;
    step_of<S>(p, chunk * kQ + lane, head, dt, decay);
    steps.dt[lane] = dt;
    steps.decay[lane] = decay;
    __syncwarp();
    float in = 1, out = 1;
    for (int i = 0; i <= lane; ++i) in *= steps.decay[i];
    for (int i = kQ - 1; i > lane; --i) out *= steps.decay[i];
    steps.in[lane] = in;
    steps.out[lane] = out;
  }
  __syncthreads();
}

/// The decays L_ij between two tokens, 0 for i < j, by warp 0, a lane a column.
__device__ inline void make_decays(const Steps& steps, const Tile& l) {
  if (threadIdx.x >= kQ) return;
  const int j = static_cast<int>(threadIdx.x);
  float product = 0;
  for (int i = 0; i < kQ; ++i) {
    product = i == j ? 1 : product * steps.decay[i];
    l(i, j) = product;
  }
}

/// Loads `columns` columns from `first` on of a chunk's rows; rows beyond the end are 0.
template <class S>
__device__ void load_tile(const Tile& to, const SimpleMatrix& from, int first, int columns,
                          int chunk, int tokens) {
  for (int i = static_cast<int>(threadIdx.x); i < kQ * columns; i += kThreads) {
    const int row = i / columns, column = i % columns, t = chunk * kQ + row;
    to(row, column) = t < tokens ? element<S>(from.data, t * from.stride + first + column) : 0;
  }
}

/// out(i, j, sum over k of a(i, k) b(k, j)); a thread makes four rows of one column. Element (i, j)
/// is always made by the same thread.
template <class A, class B, class Out>
__device__ void multiply(int rows, int columns, int depth, const A& a, const B& b, const Out& out) {
  constexpr int kRows = 4;
  const int tasks = (rows + kRows - 1) / kRows * columns;
  for (int task = static_cast<int>(threadIdx.x); task < tasks; task += kThreads) {
    const int row = task / columns * kRows, column = task % columns;
    float sums[kRows] = {};
    for (int k = 0; k < depth; ++k) {
      const float right = b(k, column);
#pragma unroll
      for (int r = 0; r < kRows; ++r) sums[r] += a(min(row + r, rows - 1), k) * right;
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (row + r < rows) out(row + r, column, sums[r]);
    }
  }
}

/// to[i] = the sum of row i of a . b, eight threads a row.
__device__ inline void row_products(const Tile& a, const Tile& b, int columns, float* to) {
  const int row = static_cast<int>(threadIdx.x) / 8, part = static_cast<int>(threadIdx.x) % 8;
  float sum = 0;
  for (int k = part; k < columns; k += 8) sum += a(row, k) * b(row, k);
#pragma unroll
  for (int mask = 4; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xFFFFFFFFU, sum, mask);
  if (part == 0) to[row] = sum;
}

/// The state (N, P) of a chunk and head in a workspace of all of them.
__device__ inline float* state_of(const SimpleScan& p, float* states, int chunk, int head) {
  return states + (static_cast<std::int64_t>(chunk) * p.heads + head) * p.state * p.head_dim;
}

/// What a chunk adds to a state: grid (chunks, heads).
///   forward: sum of dt_j out_j B_j X_j^T;  reverse, to the adjoint: sum of in_i C_i dY_i^T
/// and the decay through the chunk.
template <class S>
__global__ void __launch_bounds__(kThreads)
    local_states(const SimpleScan p, const SimpleMatrix v, bool reverse, float* states,
                 float* through) {
  extern __shared__ float shared[];
  __shared__ Steps steps;
  Room room{shared};
  const Tile u_tile = room.tile(kQ, p.state), v_tile = room.tile(kQ, p.head_dim);
  const int chunk = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
  make_steps<S>(p, chunk, head, steps);
  load_tile<S>(u_tile, reverse ? p.c : p.b, head / (p.heads / p.groups) * p.state, p.state, chunk,
               p.tokens);
  load_tile<S>(v_tile, v, head * p.head_dim, p.head_dim, chunk, p.tokens);
  __syncthreads();
  float* to = state_of(p, states, chunk, head);
  multiply(
      p.state, p.head_dim, kQ,
      [&](int n, int t) {
        return u_tile(t, n) * (reverse ? steps.in[t] : steps.dt[t] * steps.out[t]);
      },
      [&](int t, int column) { return v_tile(t, column); },
      [&](int n, int column, float sum) { to[n * p.head_dim + column] = sum; });
  if (threadIdx.x == 0 && through != nullptr) {
    through[static_cast<std::int64_t>(chunk) * p.heads + head] = steps.in[kQ - 1];
  }
}

/// What enters the chain of states and what leaves it: (heads, head_dim, state), or nullptr; the
/// decay over all of it, (heads) or nullptr.
struct Ends {
  const float* entering;
  float* leaving;
  float* total_decay;
};

/// Turns what chunks add into the state before each (the adjoint after each), in place; a thread an
/// element. Loads run ahead of the chain, eight chunks at a time.
template <bool kReverse>
__global__ void __launch_bounds__(kThreads)
    scan_states(const SimpleScan p, float* states, const float* through, const Ends ends) {
  constexpr int kAhead = 8;
  const std::int64_t size = static_cast<std::int64_t>(p.heads) * p.state * p.head_dim;
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= size) return;
  const std::int64_t head = at / (static_cast<std::int64_t>(p.state) * p.head_dim);
  const int chunks = (p.tokens + kQ - 1) / kQ;
  // element (n, column) of the transposed state of a head
  const std::int64_t within = at % (static_cast<std::int64_t>(p.state) * p.head_dim);
  const std::int64_t end =
      (head * p.head_dim + within % p.head_dim) * p.state + within / p.head_dim;
  float state = ends.entering == nullptr ? 0 : ends.entering[end], total = 1;
  for (int first = 0; first < chunks; first += kAhead) {
    float added[kAhead], decay[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (first + i >= chunks) break;
      const std::int64_t chunk = kReverse ? chunks - 1 - first - i : first + i;
      added[i] = states[chunk * size + at];
      decay[i] = through[chunk * p.heads + head];
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (first + i >= chunks) break;
      const std::int64_t chunk = kReverse ? chunks - 1 - first - i : first + i;
      states[chunk * size + at] = state;
      state = decay[i] * state + added[i];
      total *= decay[i];
    }
  }
  if (ends.leaving != nullptr) ends.leaving[end] = state;
  if (ends.total_decay != nullptr && within == 0) ends.total_decay[head] = total;
}

inline unsigned scan_blocks(const SimpleScan& p) {
  const std::int64_t size = static_cast<std::int64_t>(p.heads) * p.state * p.head_dim;
  return static_cast<unsigned>((size + kThreads - 1) / kThreads);
}

/// Launches with dynamic shared memory beyond 48 KiB.
template <class... P, class... Args>
cudaError_t launch(void (*kernel)(P...), dim3 grid, std::int64_t floats, cudaStream_t stream,
                   const Args&... args) {
  const auto bytes = static_cast<int>(floats * static_cast<std::int64_t>(sizeof(float)));
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (status != cudaSuccess) return status;
  kernel<<<grid, kThreads, static_cast<std::size_t>(bytes), stream>>>(args...);
  return cudaGetLastError();
}

template <class S>
cudaError_t launch_local_states(const SimpleScan& p, const SimpleMatrix& v, bool reverse,
                                float* states, float* through, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(p.chunks()), static_cast<unsigned>(p.heads));
  return launch(local_states<S>, grid, tile_floats(kQ, p.state) + tile_floats(kQ, p.head_dim),
                stream, p, v, reverse, states, through);
}

}  // namespace stowage::kernels::ssd::simple
