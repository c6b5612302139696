// What Newton-Schulz iterations do beside their products (newton_schulz.hpp).
//
// squares, divide: a block sums the squares of 16384 elements in fp64, in an order of its own
// threads; each block of the second kernel adds the sums of its matrix in one order and scales as
// many elements.
// mirror, polynomial: a block has a tile of 32 x 32 of a lower half and writes its mirror image
// from shared memory, so that both sides are whole lines.
// Cost: 3 passes over a matrix, and of each iteration 2 over A and 3 for the polynomial.

#include <algorithm>
#include <cstdint>

#include "kernels/optimizer/newton_schulz_launch.hpp"
#include "kernels/pack.cuh"

namespace stowage::kernels::optimizer {
namespace {

using device::round_to;
using device::to_float;
using execution::Bf16;

constexpr int kThreads = 512;
constexpr int kTile = 32;
constexpr int kTileRows = 8;  ///< threads along a column of a tile

/// The sum over a block of kThreads, in all its threads.
__device__ double block_sum(double value) {
  __shared__ double sums[kThreads];
  __syncthreads();
  sums[threadIdx.x] = value;
  __syncthreads();
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  return sums[0];
}

template <class S>
__global__ void __launch_bounds__(kThreads)
    squares(const S* x, std::int64_t elements, double* sums) {
  const S* matrix = x + blockIdx.y * elements;
  const std::int64_t begin = kSquaresChunk * blockIdx.x;
  const std::int64_t end = min(begin + kSquaresChunk, elements);
  double sum = 0;
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    const auto value = static_cast<double>(to_float(matrix[i]));
    sum = fma(value, value, sum);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[static_cast<std::int64_t>(blockIdx.y) * gridDim.x + blockIdx.x] = sum;
}

template <class S>
__global__ void __launch_bounds__(kThreads)
    divide(const S* x, S* to, std::int64_t elements, const double* sums) {
  const double* own = sums + static_cast<std::int64_t>(blockIdx.y) * gridDim.x;
  double sum = 0;
  for (unsigned i = threadIdx.x; i < gridDim.x; i += kThreads) sum += own[i];
  const auto factor = static_cast<float>(1 / (sqrt(block_sum(sum)) + 1e-7));
  const std::int64_t first = blockIdx.y * elements, begin = kSquaresChunk * blockIdx.x;
  const std::int64_t end = min(begin + kSquaresChunk, elements);
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads)
    to[first + i] = round_to<S>(to_float(x[first + i]) * factor);
}

/// Calls lower(i, j) for the elements of a tile on or below the diagonal, which gives a value, and
/// stores that at (i, j), unless `keeps`, and at (j, i).
template <bool kKeeps, class S, class Lower>
__device__ void mirror_tile(S* matrix, std::int64_t n, Lower lower) {
  if (blockIdx.x > blockIdx.y) return;
  __shared__ S tile[kTile][kTile + 2];
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * kTile;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kTile;
  for (int r = threadIdx.y; r < kTile; r += kTileRows) {
    const std::int64_t i = row + r, j = column + threadIdx.x;
    if (i >= n || j > i) continue;
    const S value = lower(i, j);
    tile[r][threadIdx.x] = value;
    if (!kKeeps) matrix[i * n + j] = value;
  }
  __syncthreads();
  for (int r = threadIdx.y; r < kTile; r += kTileRows) {
    const std::int64_t i = column + r, j = row + threadIdx.x;
    if (j < n && j > i) matrix[i * n + j] = tile[threadIdx.x][r];
  }
}

template <class S>
__global__ void __launch_bounds__(kTile* kTileRows) mirror(S* matrices, std::int64_t n) {
  S* matrix = matrices + static_cast<std::int64_t>(blockIdx.z) * n * n;
  mirror_tile<true>(matrix, n, [&](std::int64_t i, std::int64_t j) { return matrix[i * n + j]; });
}

template <class S>
__global__ void __launch_bounds__(kTile* kTileRows)
    polynomial(const S* grams, S* squared, std::int64_t n, float a, float b, float c, float scale) {
  const S* gram = grams + static_cast<std::int64_t>(blockIdx.z) * n * n;
  S* square = squared + static_cast<std::int64_t>(blockIdx.z) * n * n;
  mirror_tile<false>(square, n, [&](std::int64_t i, std::int64_t j) {
    const float sum =
        fmaf(c, to_float(square[i * n + j]), fmaf(b, to_float(gram[i * n + j]), i == j ? a : 0.0F));
    return round_to<S>(scale * sum);
  });
}

/// A grid has 65535 blocks along y and z at most.
constexpr std::int64_t kMostBlocks = 65535;

/// Calls body(first, count) for groups of matrices that one grid takes.
template <class Body>
int in_groups(std::int64_t count, Body&& body) {
  for (std::int64_t first = 0; first < count; first += kMostBlocks) {
    body(first, static_cast<unsigned>(std::min(kMostBlocks, count - first)));
    if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

dim3 tiles(std::int64_t n, unsigned count) {
  const auto edge = static_cast<unsigned>((n + kTile - 1) / kTile);
  return {edge, edge, count};
}

}  // namespace

template <class S>
int launch_normalise(const NewtonSchulz& op, const S* x, S* to, double* sums, void* stream) {
  const std::int64_t elements = op.rows * op.columns, chunks = squares_chunks(op);
  const auto on = static_cast<cudaStream_t>(stream);
  return in_groups(op.count, [&](std::int64_t first, unsigned count) {
    const dim3 grid(static_cast<unsigned>(chunks), count);
    squares<S><<<grid, kThreads, 0, on>>>(x + first * elements, elements, sums + first * chunks);
    divide<S><<<grid, kThreads, 0, on>>>(x + first * elements, to + first * elements, elements,
                                         sums + first * chunks);
  });
}

template <class S>
int launch_mirror(S* matrices, std::int64_t count, std::int64_t n, void* stream) {
  return in_groups(count, [&](std::int64_t first, unsigned some) {
    mirror<S><<<tiles(n, some), dim3(kTile, kTileRows), 0, static_cast<cudaStream_t>(stream)>>>(
        matrices + first * n * n, n);
  });
}

template <class S>
int launch_polynomial(const S* gram, S* square, std::int64_t count, std::int64_t n,
                      const NewtonSchulzOptions& options, double scale, void* stream) {
  const auto [a, b, c] = options.coefficients;
  return in_groups(count, [&, a = a, b = b, c = c](std::int64_t first, unsigned some) {
    polynomial<S><<<tiles(n, some), dim3(kTile, kTileRows), 0, static_cast<cudaStream_t>(stream)>>>(
        gram + first * n * n, square + first * n * n, n, static_cast<float>(a),
        static_cast<float>(b), static_cast<float>(c), static_cast<float>(scale));
  });
}

template int launch_normalise(const NewtonSchulz&, const float*, float*, double*, void*);
template int launch_normalise(const NewtonSchulz&, const Bf16*, Bf16*, double*, void*);
template int launch_mirror(float*, std::int64_t, std::int64_t, void*);
template int launch_mirror(Bf16*, std::int64_t, std::int64_t, void*);
template int launch_polynomial(const float*, float*, std::int64_t, std::int64_t,
                               const NewtonSchulzOptions&, double, void*);
template int launch_polynomial(const Bf16*, Bf16*, std::int64_t, std::int64_t,
                               const NewtonSchulzOptions&, double, void*);

}  // namespace stowage::kernels::optimizer
