// Grouped products without tensor cores, for storage and extents that the Hopper kernels do not
// serve: fp32, and bf16 rows that are no multiple of 16 bytes.
//
// Formulas and layouts of grouped_linear.hpp. A block owns a 64 x 64 tile of the output, a thread
// 4 x 4 of it; operands pass through shared memory as fp32, 16 of the contraction at a time, sums
// are fp32 in the order of the contraction. Deterministic. Limit: fp32 arithmetic, at best.

#include <cuda_bf16.h>

#include "kernels/grouped_mlp/grouped_launch.hpp"

namespace stowage::kernels::grouped {
namespace {

constexpr int kTile = 64;
constexpr int kStep = 16;
constexpr int kSimpleThreads = 256;

__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ __forceinline__ void assign(float& to, float value) { to = value; }
__device__ __forceinline__ void assign(__nv_bfloat16& to, float value) {
  to = __float2bfloat16(value);
}

/// A matrix whose element (i, k) of the product's operand is data[i * outer + k * inner].
template <class S>
struct Strided {
  const S* data;
  std::int64_t outer, inner;
};

/// out (m, n) at `row`, `column` = sum over k < depth of a(i, k) b(j, k); stored or added to.
template <class S, class D>
__device__ void multiply_tile(const Strided<S>& a, const Strided<S>& b, D* out, int m, int n,
                              int depth, int row, int column, bool accumulate) {
  __shared__ float left[kStep][kTile + 4];
  __shared__ float right[kStep][kTile + 4];
  const int thread = static_cast<int>(threadIdx.x);
  const int x = thread % 16 * 4;
  const int y = thread / 16 * 4;
  float sums[4][4] = {};
  for (int first = 0; first < depth; first += kStep) {
    // Neighbouring threads read along the contiguous extent of each operand.
    for (int i = thread; i < kTile * kStep; i += kSimpleThreads) {
      const int ai = a.inner == 1 ? i / kStep : i % kTile;
      const int ak = a.inner == 1 ? i % kStep : i / kTile;
      const int bi = b.inner == 1 ? i / kStep : i % kTile;
      const int bk = b.inner == 1 ? i % kStep : i / kTile;
      const bool a_there = row + ai < m && first + ak < depth;
      const bool b_there = column + bi < n && first + bk < depth;
      left[ak][ai] =
          a_there ? to_float(a.data[(row + ai) * a.outer + (first + ak) * a.inner]) : 0.0F;
      right[bk][bi] =
          b_there ? to_float(b.data[(column + bi) * b.outer + (first + bk) * b.inner]) : 0.0F;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kStep; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[i][j] += left[k][y + i] * right[k][x + j];
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (row + y + i < m && column + x + j < n) {
        D& at = out[static_cast<std::int64_t>(row + y + i) * n + column + x + j];
        assign(at, accumulate ? to_float(at) + sums[i][j] : sums[i][j]);
      }
    }
  }
}

/// The expert of row tile `tile`, counting the tiles of each expert; moves `tile` into it.
__device__ int expert_of(const int* offsets, int experts, int& tile) {
  for (int e = 0; e < experts; ++e) {
    const int tiles = (offsets[e + 1] - offsets[e] + kTile - 1) / kTile;
    if (tile < tiles) return e;
    tile -= tiles;
  }
  return -1;
}

/// y = x w[e]^T (kTransposed: false) or dx = dy w[e].
template <class S, bool kTransposed>
__global__ void __launch_bounds__(kSimpleThreads) simple_rows_kernel(SimpleParameters p) {
  const int columns = kTransposed ? p.inputs : p.outputs;
  const int depth = kTransposed ? p.outputs : p.inputs;
  int tile = static_cast<int>(blockIdx.y);
  const int e = expert_of(p.offsets, p.experts, tile);
  if (e < 0) return;
  const std::int64_t begin = p.offsets[e];
  const S* w = static_cast<const S*>(p.b) + static_cast<std::int64_t>(e) * p.outputs * p.inputs;
  multiply_tile<S, S>({static_cast<const S*>(p.a) + begin * depth, depth, 1},
                      kTransposed ? Strided<S>{w, 1, columns} : Strided<S>{w, depth, 1},
                      static_cast<S*>(p.out) + begin * columns, p.offsets[e + 1] - p.offsets[e],
                      columns, depth, tile * kTile, static_cast<int>(blockIdx.x) * kTile,
                      p.accumulate);
}

template <class S>
__global__ void __launch_bounds__(kSimpleThreads) simple_weight_kernel(SimpleParameters p) {
  const auto e = static_cast<std::int64_t>(blockIdx.z);
  const std::int64_t begin = p.offsets[e];
  const int count = p.offsets[e + 1] - p.offsets[e];
  if (count == 0 && p.accumulate) return;
  multiply_tile<S, float>({static_cast<const S*>(p.a) + begin * p.outputs, 1, p.outputs},
                          {static_cast<const S*>(p.b) + begin * p.inputs, 1, p.inputs},
                          static_cast<float*>(p.out) + e * p.outputs * p.inputs, p.outputs,
                          p.inputs, count, static_cast<int>(blockIdx.y) * kTile,
                          static_cast<int>(blockIdx.x) * kTile, p.accumulate);
}

unsigned tiles(std::int64_t extent) { return static_cast<unsigned>((extent + kTile - 1) / kTile); }

template <bool kTransposed>
cudaError_t launch_rows(const SimpleParameters& p, cudaStream_t stream) {
  // Each expert adds at most one tile that it does not fill.
  const dim3 grid(tiles(kTransposed ? p.inputs : p.outputs),
                  tiles(p.rows) + static_cast<unsigned>(p.experts));
  if (p.bf16) {
    simple_rows_kernel<__nv_bfloat16, kTransposed><<<grid, kSimpleThreads, 0, stream>>>(p);
  } else {
    simple_rows_kernel<float, kTransposed><<<grid, kSimpleThreads, 0, stream>>>(p);
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_simple_forward(const SimpleParameters& parameters, cudaStream_t stream) {
  return launch_rows<false>(parameters, stream);
}

cudaError_t launch_simple_backward_input(const SimpleParameters& parameters, cudaStream_t stream) {
  return launch_rows<true>(parameters, stream);
}

cudaError_t launch_simple_backward_weight(const SimpleParameters& p, cudaStream_t stream) {
  const dim3 grid(tiles(p.inputs), tiles(p.outputs), static_cast<unsigned>(p.experts));
  if (p.bf16) {
    simple_weight_kernel<__nv_bfloat16><<<grid, kSimpleThreads, 0, stream>>>(p);
  } else {
    simple_weight_kernel<float><<<grid, kSimpleThreads, 0, stream>>>(p);
  }
  return cudaGetLastError();
}

}  // namespace stowage::kernels::grouped
