// What Newton-Schulz iterations do beside their products (newton_schulz.hpp).
//
// squares, divide: a block sums the squares of 16384 elements in fp64, in an order of its own
// threads; each block of the second kernel adds the sums of its matrix in one order and scales as
// many elements. squares_of_all, divide_all: the same for matrices that go by tiles, 16 bytes at a
// time, those of several shapes at once, to fp16.
// mirror, polynomial: a block has a tile of 32 x 32 of a lower half and writes its mirror image
// from shared memory, so that both sides are whole lines.
// Cost: 3 passes over a matrix, and of each iteration 2 over A and 3 for the polynomial.

#include <algorithm>
#include <cstdint>

#include "kernels/optimizer/newton_schulz_launch.hpp"
#include "kernels/pack.cuh"

namespace stowage::kernels::optimizer {
namespace {

using device::kPackSize;
using device::round_to;
using device::to_float;
using device::unpack;
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

/// Calls body(i) for each kStep-th element of a chunk.
template <int kStep, class Body>
__device__ __forceinline__ void each_element(std::int64_t elements, unsigned chunk, Body&& body) {
  const std::int64_t begin = kSquaresChunk * chunk, end = min(begin + kSquaresChunk, elements);
  for (std::int64_t i = begin + threadIdx.x * kStep; i < end; i += kThreads * kStep) body(i);
}

template <class S>
__global__ void __launch_bounds__(kThreads)
    squares(const S* x, std::int64_t elements, double* sums) {
  const S* matrix = x + blockIdx.y * elements;
  double sum = 0;
  each_element<1>(elements, blockIdx.x, [&](std::int64_t i) {
    const auto value = static_cast<double>(to_float(matrix[i]));
    sum = fma(value, value, sum);
  });
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[static_cast<std::int64_t>(blockIdx.y) * gridDim.x + blockIdx.x] = sum;
}

/// 1 / (|x|_F + 1e-7) of a matrix, in all threads of a block.
__device__ float one_by_norm(const double* sums, unsigned chunks) {
  double sum = 0;
  for (unsigned i = threadIdx.x; i < chunks; i += kThreads) sum += sums[i];
  return static_cast<float>(1 / (sqrt(block_sum(sum)) + 1e-7));
}

template <class S>
__global__ void __launch_bounds__(kThreads)
    divide(const S* x, S* to, std::int64_t elements, const double* sums) {
  const float factor =
      one_by_norm(sums + static_cast<std::int64_t>(blockIdx.y) * gridDim.x, gridDim.x);
  const std::int64_t first = blockIdx.y * elements;
  each_element<1>(elements, blockIdx.x, [&](std::int64_t i) {
    to[first + i] = round_to<S>(to_float(x[first + i]) * factor);
  });
}

/// Matrices of some shapes, by blocks of one chunk each.
struct Shapes {
  struct One {
    const Bf16* x;
    Bf16* to;
    double* sums;           // (matrices, chunks)
    int* counters;          // of launches, then of matrices
    std::int64_t elements;  // of a matrix
    unsigned chunks;        // of a matrix
    unsigned first;         // block
  };
  One all[kMostShapes];
  int count, launches;
};

/// Calls body(shape, matrix, chunk) for this block.
template <class Body>
__device__ __forceinline__ void with_chunk(const Shapes& shapes, Body&& body) {
  int at = 0;
  while (at + 1 < shapes.count && shapes.all[at + 1].first <= blockIdx.x) ++at;
  const Shapes::One& one = shapes.all[at];
  const unsigned block = blockIdx.x - one.first, matrix = block / one.chunks;
  body(one, matrix, block - matrix * one.chunks);
}

__global__ void __launch_bounds__(kThreads) squares_of_all(const __grid_constant__ Shapes shapes) {
  with_chunk(shapes, [](const Shapes::One& one, unsigned matrix, unsigned chunk) {
    const Bf16* x = one.x + matrix * one.elements;
    double sum = 0;
    each_element<kPackSize<Bf16>>(one.elements, chunk, [&](std::int64_t i) {
      float values[kPackSize<Bf16>];
      unpack<Bf16>(*reinterpret_cast<const uint4*>(x + i), values);
#pragma unroll
      for (const float value : values)
        sum = fma(static_cast<double>(value), static_cast<double>(value), sum);
    });
    sum = block_sum(sum);
    if (threadIdx.x == 0) one.sums[matrix * one.chunks + chunk] = sum;
  });
}

__global__ void __launch_bounds__(kThreads) divide_all(const __grid_constant__ Shapes shapes) {
  with_chunk(shapes, [&](const Shapes::One& one, unsigned matrix, unsigned chunk) {
    const float factor =
        static_cast<float>(kFp16Norm) * one_by_norm(one.sums + matrix * one.chunks, one.chunks);
    const std::int64_t first = matrix * one.elements;
    each_element<kPackSize<Bf16>>(one.elements, chunk, [&](std::int64_t i) {
      float values[kPackSize<Bf16>];
      unpack<Bf16>(*reinterpret_cast<const uint4*>(one.x + first + i), values);
      std::uint32_t words[4];
#pragma unroll
      for (int e = 0; e < 4; ++e)
        words[e] = hopper::pack_f16(factor * values[2 * e], factor * values[2 * e + 1]);
      *reinterpret_cast<uint4*>(one.to + first + i) = {words[0], words[1], words[2], words[3]};
    });
    if (chunk > 0) return;
    if (threadIdx.x == 0) one.counters[shapes.launches + matrix] = 0;
    if (matrix == 0)
      for (int i = static_cast<int>(threadIdx.x); i < shapes.launches; i += kThreads)
        one.counters[i] = 0;
  });
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
int launch_normalise(const EqualMatrices& m, const S* x, S* to, double* sums, void* stream) {
  const std::int64_t elements = m.rows * m.columns, chunks = squares_chunks(m);
  const auto on = static_cast<cudaStream_t>(stream);
  return in_groups(m.count, [&](std::int64_t first, unsigned count) {
    const dim3 grid(static_cast<unsigned>(chunks), count);
    squares<S><<<grid, kThreads, 0, on>>>(x + first * elements, elements, sums + first * chunks);
    divide<S><<<grid, kThreads, 0, on>>>(x + first * elements, to + first * elements, elements,
                                         sums + first * chunks);
  });
}

int launch_normalise_fp16(const NewtonSchulzOptions& options, std::span<const TileMatrices> all,
                          void* stream) {
  Shapes shapes{};
  shapes.launches = static_cast<int>(launches(options));
  unsigned blocks = 0;
  for (const TileMatrices& of : all) {
    const auto chunks = static_cast<unsigned>(squares_chunks(of.shape));
    shapes.all[shapes.count++] = {
        of.x,   of.start(), of.room.squares, of.room.counters, of.shape.rows * of.shape.columns,
        chunks, blocks};
    blocks += chunks * static_cast<unsigned>(of.shape.count);
  }
  const auto on = static_cast<cudaStream_t>(stream);
  squares_of_all<<<blocks, kThreads, 0, on>>>(shapes);
  divide_all<<<blocks, kThreads, 0, on>>>(shapes);
  return cudaGetLastError();
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

template int launch_normalise(const EqualMatrices&, const float*, float*, double*, void*);
template int launch_normalise(const EqualMatrices&, const Bf16*, Bf16*, double*, void*);
template int launch_mirror(float*, std::int64_t, std::int64_t, void*);
template int launch_mirror(Bf16*, std::int64_t, std::int64_t, void*);
template int launch_polynomial(const float*, float*, std::int64_t, std::int64_t,
                               const NewtonSchulzOptions&, double, void*);
template int launch_polynomial(const Bf16*, Bf16*, std::int64_t, std::int64_t,
                               const NewtonSchulzOptions&, double, void*);

}  // namespace stowage::kernels::optimizer
