// The largest magnitude of a tensor, and its 8-bit payload with the transpose of it; formulas in
// quantise.hpp.
//
// Bound by memory. Magnitudes are compared as integers, whose order is that of the values and puts
// NaN above all: the result depends on no order, and one atomic a block costs nothing. A block of
// the second kernel owns 128 rows by 128 columns. A thread converts four rows of eight columns,
// writes the rows at once, and leaves for each column the four bytes of its rows as one word in
// shared memory; then every column is written as 128 bytes in a row. Words of a column are 33
// apart, so that neither direction has bank conflicts.
// Limit: that of a copy of as many bytes.

#include <cuda_fp8.h>

#include "kernels/access.cuh"
#include "kernels/fp8/quantise_launch.hpp"
#include "kernels/machine.hpp"

namespace stowage::kernels::fp8 {
namespace {

using execution::Bf16;
using execution::Dtype;

constexpr int kThreads = 512;
constexpr int kTile = 128;   // rows and columns of a block
constexpr int kColumns = 8;  // of a thread
constexpr int kRows = 4;     // of a thread: the bytes of a word
constexpr int kGroups = kTile / kRows;
constexpr int kWordStride = kGroups + 1;
constexpr int kUnroll = 4;

// Bits of the magnitudes of 16 bytes, the largest of them as fp32.
template <class S>
__device__ __forceinline__ std::uint32_t largest_of(const uint4& pack) {
  const std::uint32_t words[4] = {pack.x, pack.y, pack.z, pack.w};
  std::uint32_t largest = 0;
#pragma unroll
  for (const std::uint32_t word : words) {
    if constexpr (sizeof(S) == 2)
      largest = __vmaxu2(largest, word & 0x7fff7fffU);
    else
      largest = max(largest, word & 0x7fffffffU);
  }
  if constexpr (sizeof(S) == 2) largest = max(largest & 0xffff0000U, largest << 16);
  return largest;
}

template <class S>
__global__ void __launch_bounds__(kThreads)
    largest_kernel(std::int64_t elements, const S* x, std::uint32_t* amax) {
  constexpr int kPack = 16 / sizeof(S);
  const std::int64_t packs = elements / kPack;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  const auto* from = reinterpret_cast<const uint4*>(x);
  std::uint32_t largest = 0;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < packs;
       i += kUnroll * step) {
    uint4 loaded[kUnroll] = {};
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      if (i + u * step < packs) loaded[u] = from[i + u * step];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) largest = max(largest, largest_of<S>(loaded[u]));
  }
  if (blockIdx.x == 0)
    for (std::int64_t i = packs * kPack + threadIdx.x; i < elements; i += kThreads)
      largest = max(largest, __float_as_uint(device::to_float(x[i])) & 0x7fffffffU);
  largest = __reduce_max_sync(0xffffffffU, largest);
  if (threadIdx.x % 32 == 0 && largest > 0) atomicMax(amax, largest);
}

// 1.75 times a power of two is the largest value of either format.
template <__nv_fp8_interpretation_t kFormat>
__device__ __forceinline__ float scale_for(float amax) {
  constexpr int kLargestExponent = kFormat == __NV_E4M3 ? 8 : 15;
  constexpr std::uint32_t kLargestMantissa = 0x600000U;
  const std::uint32_t bits = __float_as_uint(amax);
  const int exponent = static_cast<int>(bits >> 23);
  if (exponent == 255) return __uint_as_float(0x7fc00000U);
  const int wanted = exponent - kLargestExponent + ((bits & 0x7fffffU) > kLargestMantissa ? 1 : 0);
  return __uint_as_float(static_cast<std::uint32_t>(max(wanted, 1)) << 23);
}

template <class S, __nv_fp8_interpretation_t kFormat>
__global__ void __launch_bounds__(kThreads) quantise_kernel(const QuantiseArgs<S> args) {
  __shared__ std::uint32_t words[kTile][kWordStride];
  const float scale = scale_for<kFormat>(*args.amax);
  const float inverse = 1.0F / scale;
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) *args.scale = scale;
  // A warp: 4 neighbouring packs of columns by 8 neighbouring groups of rows.
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int pack = warp % 4 * 4 + lane % 4, group = warp / 4 * 8 + lane / 4;
  const std::int64_t column = std::int64_t{blockIdx.x} * kTile + pack * kColumns;
  const std::int64_t row = std::int64_t{blockIdx.y} * kTile + group * kRows;
  constexpr int kLoads = kColumns * static_cast<int>(sizeof(S)) / 16;
  constexpr int kPack = kColumns / kLoads;
  if (column < args.width && row < args.rows) {
    uint4 loaded[kRows][kLoads];
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int l = 0; l < kLoads; ++l)
        loaded[r][l] =
            *reinterpret_cast<const uint4*>(args.x + (row + r) * args.width + column + l * kPack);
    std::uint32_t pairs[kRows][kColumns / 2];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float values[kLoads][kPack];
#pragma unroll
      for (int l = 0; l < kLoads; ++l) device::unpack<S>(loaded[r][l], values[l]);
#pragma unroll
      for (int c = 0; c < kColumns; c += 2)
        pairs[r][c / 2] = __nv_cvt_float2_to_fp8x2(
            make_float2(values[c / kPack][c % kPack] * inverse,
                        values[(c + 1) / kPack][(c + 1) % kPack] * inverse),
            __NV_SATFINITE, kFormat);
      if (args.payload != nullptr)
        *reinterpret_cast<uint2*>(args.payload + (row + r) * args.width + column) =
            make_uint2(pairs[r][0] | pairs[r][1] << 16, pairs[r][2] | pairs[r][3] << 16);
    }
#pragma unroll
    for (int c = 0; c < kColumns / 2; ++c) {
      const std::uint32_t upper = pairs[0][c] | pairs[1][c] << 16;
      const std::uint32_t lower = pairs[2][c] | pairs[3][c] << 16;
      words[pack * kColumns + 2 * c][group] = __byte_perm(upper, lower, 0x6420);
      words[pack * kColumns + 2 * c + 1][group] = __byte_perm(upper, lower, 0x7531);
    }
  }
  if (args.transposed == nullptr) return;
  __syncthreads();
  constexpr int kChunks = kTile / 16;  // of 16 rows
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kChunks; i += kThreads) {
    const int j = i / kChunks, first = i % kChunks * 4;
    const std::int64_t to = std::int64_t{blockIdx.x} * kTile + j;
    const std::int64_t from = std::int64_t{blockIdx.y} * kTile + first * kRows;
    if (to < args.width && from < args.rows)
      *reinterpret_cast<uint4*>(args.transposed + to * args.rows + from) = make_uint4(
          words[j][first], words[j][first + 1], words[j][first + 2], words[j][first + 3]);
  }
}

unsigned tiles(std::int64_t extent) { return static_cast<unsigned>((extent + kTile - 1) / kTile); }

}  // namespace

template <class S>
int launch_largest_magnitude(std::int64_t elements, const S* x, float* amax, void* stream) {
  constexpr int kBlocksEach = 4;
  constexpr std::int64_t kBlockElements = std::int64_t{kThreads} * kUnroll * (16 / sizeof(S));
  auto* const on = static_cast<cudaStream_t>(stream);
  if (const cudaError_t code = cudaMemsetAsync(amax, 0, sizeof(float), on); code != cudaSuccess)
    return code;
  const std::int64_t blocks = (elements + kBlockElements - 1) / kBlockElements;
  const auto most = std::int64_t{kBlocksEach} * machine().multiprocessors;
  if (blocks > 0)
    largest_kernel<S><<<static_cast<unsigned>(min(blocks, most)), kThreads, 0, on>>>(
        elements, x, reinterpret_cast<std::uint32_t*>(amax));
  return cudaGetLastError();
}

template <class S>
int launch_quantise(const QuantiseArgs<S>& args, void* stream) {
  if (args.rows == 0 || args.width == 0) return cudaSuccess;
  const dim3 blocks(tiles(args.width), tiles(args.rows));
  auto* const on = static_cast<cudaStream_t>(stream);
  if (args.dtype == Dtype::e4m3)
    quantise_kernel<S, __NV_E4M3><<<blocks, kThreads, 0, on>>>(args);
  else
    quantise_kernel<S, __NV_E5M2><<<blocks, kThreads, 0, on>>>(args);
  return cudaGetLastError();
}

template int launch_largest_magnitude(std::int64_t, const float*, float*, void*);
template int launch_largest_magnitude(std::int64_t, const Bf16*, float*, void*);
template int launch_quantise(const QuantiseArgs<float>&, void*);
template int launch_quantise(const QuantiseArgs<Bf16>&, void*);

}  // namespace stowage::kernels::fp8
