// The largest magnitude of a tensor, its 8-bit payload with the transpose of it, and the transpose
// of a payload; formulas in quantise.hpp.
//
// Bound by memory: an activation is applied to what was read, in both kernels, so that its result
// never lies in memory. The first begins to read while amax is still being cleared, and a block of
// it has one atomic: both took an eighth of the time of 64 MiB. A block of the second owns 128 rows
// by 128 columns. A thread converts four rows of eight columns, writes the rows at once, and leaves
// for each column the four bytes of its rows as one word in shared memory; then every column is
// written as 128 bytes in a row. Words of a column are 33 apart, so that neither direction has bank
// conflicts.
// Limit: that of a copy of as many bytes.

#include <cuda_fp8.h>

#include "kernels/access.cuh"
#include "kernels/activation/activation.cuh"
#include "kernels/fp8/quantise_launch.hpp"
#include "kernels/hopper/dependent_launch.cuh"
#include "kernels/hopper/griddepcontrol.cuh"
#include "kernels/machine.hpp"
#include "kernels/magnitude.cuh"

namespace stowage::kernels::fp8 {
namespace {

using execution::Bf16;
using execution::Dtype;

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kTile = 128;   // rows and columns of a block
constexpr int kColumns = 8;  // of a thread
constexpr int kRows = 4;     // of a thread: the bytes of a word
constexpr int kGroups = kTile / kRows;
constexpr int kWordStride = kGroups + 1;
constexpr int kUnroll = 4;      // loads of a thread in flight, where largest magnitudes are found
constexpr int kBlocksEach = 4;  // of such a launch, on a multiprocessor at once

// What is measured and rounded: x, or an activation of it, rounded to S as it would be stored.
enum class Source : unsigned char { plain, squared_relu, swiglu };

template <class S, Source kSource>
__device__ __forceinline__ uint4 load(const S* x, std::int64_t row, std::int64_t column,
                                      std::int64_t width) {
  const std::int64_t at = row * width * (kSource == Source::swiglu ? 2 : 1) + column;
  uint4 pack = *reinterpret_cast<const uint4*>(x + at);
  if constexpr (kSource != Source::plain) {
    constexpr Activation kKind =
        kSource == Source::swiglu ? Activation::swiglu : Activation::squared_relu;
    float values[device::kPackSize<S>], up[device::kPackSize<S>] = {};
    device::unpack<S>(pack, values);
    if constexpr (kSource == Source::swiglu)
      device::unpack<S>(*reinterpret_cast<const uint4*>(x + at + width), up);
#pragma unroll
    for (int i = 0; i < device::kPackSize<S>; ++i)
      values[i] = activation::activate<kKind>(values[i], up[i]);
    pack = device::pack<S>(values);
  }
  return pack;
}

// Lets the next kernel begin at once: it reads what was there before this one began.
__global__ void clear_kernel(float* amax) {
  hopper::griddepcontrol_launch_dependents();
  *amax = 0;
}

template <class S, Source kSource>
__global__ void __launch_bounds__(kThreads, kBlocksEach) largest_kernel(const LargestArgs<S> args) {
  constexpr int kPack = 16 / sizeof(S);
  constexpr int kAtOnce = kSource == Source::swiglu ? kUnroll / 2 : kUnroll;  // two loads a pack
  const std::int64_t elements = args.rows * args.width, packs = elements / kPack;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  const auto load_pack = [&](std::int64_t i) {
    if constexpr (kSource != Source::swiglu) return load<S, kSource>(args.x, 0, i * kPack, 0);
    const std::int64_t of_row = args.width / kPack;
    return load<S, kSource>(args.x, i / of_row, i % of_row * kPack, args.width);
  };
  std::uint32_t largest = 0;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < packs;
       i += kAtOnce * step) {
    uint4 loaded[kAtOnce] = {};
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u)
      if (i + u * step < packs) loaded[u] = load_pack(i + u * step);
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) largest = max(largest, device::largest_of<S>(loaded[u]));
  }
  if (kSource == Source::plain && blockIdx.x == 0)
    for (std::int64_t i = packs * kPack + threadIdx.x; i < elements; i += kThreads)
      largest = max(largest, device::largest_of<S>(args.x[i]));
  hopper::griddepcontrol_wait();  // amax is clear
  device::add_block_largest<kThreads>(largest, args.amax);
}

// A warp walks through rows of the columns.
template <class S, bool kPacked>
__global__ void __launch_bounds__(kThreads, kBlocksEach)
    join_kernel(const JoinLargestArgs<S> args) {
  using Data = device::Access<S, kPacked>;
  const std::int64_t of_row = args.width / Data::kSize, step = std::int64_t{gridDim.x} * kWarps;
  std::uint32_t largest = 0;
  for (std::int64_t row = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; row < args.rows;
       row += step) {
    const S* x = args.x + row * args.stride;
    for (std::int64_t j = threadIdx.x % 32; j < of_row; j += 32 * kUnroll) {
      typename Data::Bits loaded[kUnroll] = {};
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
        if (j + 32 * u < of_row) loaded[u] = Data::load(x + (j + 32 * u) * Data::kSize);
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) largest = max(largest, device::largest_of<S>(loaded[u]));
    }
  }
  device::add_block_largest<kThreads>(largest, args.amax);
}

// 1.75 times a power of two is the largest value of either format.
template <__nv_fp8_interpretation_t kFormat>
__device__ __forceinline__ float scale_for(const float* amax, int parts) {
  constexpr int kLargestExponent = kFormat == __NV_E4M3 ? 8 : 15;
  constexpr std::uint32_t kLargestMantissa = 0x600000U;
  std::uint32_t bits = __float_as_uint(amax[0]);
  for (int i = 1; i < parts; ++i) bits = max(bits, __float_as_uint(amax[i]));
  const int exponent = static_cast<int>(bits >> 23);
  if (exponent == 255) return __uint_as_float(0x7fc00000U);
  const int wanted = exponent - kLargestExponent + ((bits & 0x7fffffU) > kLargestMantissa ? 1 : 0);
  return __uint_as_float(static_cast<std::uint32_t>(max(wanted, 1)) << 23);
}

// The place of a thread in a tile. A warp: 4 neighbouring packs of columns by 8 neighbouring groups
// of rows.
struct Place {
  int pack, group;
  std::int64_t column, row;

  __device__ Place() {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    pack = warp % 4 * 4 + lane % 4;
    group = warp / 4 * 8 + lane / 4;
    column = std::int64_t{blockIdx.x} * kTile + pack * kColumns;
    row = std::int64_t{blockIdx.y} * kTile + group * kRows;
  }
};

// Words of a tile's columns.
using Words = std::uint32_t[kTile][kWordStride];

// Leaves a thread's bytes, of which pairs of neighbouring columns lie together.
__device__ __forceinline__ void leave_columns(const std::uint32_t (&pairs)[kRows][kColumns / 2],
                                              const Place& place, Words& words) {
#pragma unroll
  for (int c = 0; c < kColumns / 2; ++c) {
    const std::uint32_t upper = pairs[0][c] | pairs[1][c] << 16;
    const std::uint32_t lower = pairs[2][c] | pairs[3][c] << 16;
    words[place.pack * kColumns + 2 * c][place.group] = __byte_perm(upper, lower, 0x6420);
    words[place.pack * kColumns + 2 * c + 1][place.group] = __byte_perm(upper, lower, 0x7531);
  }
}

// Writes the tile's columns as rows of the transpose.
__device__ __forceinline__ void write_columns(const Words& words, std::int64_t rows,
                                              std::int64_t width, std::uint8_t* transposed) {
  constexpr int kChunks = kTile / 16;  // of 16 rows
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kChunks; i += kThreads) {
    const int j = i / kChunks, first = i % kChunks * 4;
    const std::int64_t to = std::int64_t{blockIdx.x} * kTile + j;
    const std::int64_t from = std::int64_t{blockIdx.y} * kTile + first * kRows;
    if (to < width && from < rows)
      *reinterpret_cast<uint4*>(transposed + to * rows + from) = make_uint4(
          words[j][first], words[j][first + 1], words[j][first + 2], words[j][first + 3]);
  }
}

template <class S, __nv_fp8_interpretation_t kFormat, Source kSource>
__global__ void __launch_bounds__(kThreads) quantise_kernel(const QuantiseArgs<S> args) {
  __shared__ Words words;
  const float scale = scale_for<kFormat>(args.amax, args.parts);
  const float inverse = 1.0F / scale;
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) {
    if (args.scale != nullptr) *args.scale = scale;
    if (args.transposed_scale != nullptr) *args.transposed_scale = scale;
  }
  const Place place;
  const std::int64_t column = place.column, row = place.row;
  constexpr int kLoads = kColumns * static_cast<int>(sizeof(S)) / 16;
  constexpr int kPack = kColumns / kLoads;
  if (column < args.width && row < args.rows) {
    uint4 loaded[kRows][kLoads];
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int l = 0; l < kLoads; ++l)
        loaded[r][l] = load<S, kSource>(args.x, row + r, column + l * kPack, args.width);
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
    leave_columns(pairs, place, words);
  }
  if (args.transposed == nullptr) return;
  __syncthreads();
  write_columns(words, args.rows, args.width, args.transposed);
}

__global__ void __launch_bounds__(kThreads) transpose_kernel(const TransposeArgs args) {
  __shared__ Words words;
  const Place place;
  if (place.column < args.width && place.row < args.rows) {
    std::uint32_t pairs[kRows][kColumns / 2];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const uint2 row = *reinterpret_cast<const uint2*>(
          args.payload + (place.row + r) * args.width + place.column);
      pairs[r][0] = row.x & 0xffffU;
      pairs[r][1] = row.x >> 16;
      pairs[r][2] = row.y & 0xffffU;
      pairs[r][3] = row.y >> 16;
    }
    leave_columns(pairs, place, words);
  }
  __syncthreads();
  write_columns(words, args.rows, args.width, args.transposed);
}

unsigned tiles(std::int64_t extent) { return static_cast<unsigned>((extent + kTile - 1) / kTile); }

// Calls f.operator()<kSource>().
template <class F>
void with_source(std::optional<Activation> activation, F&& f) {
  if (!activation)
    f.template operator()<Source::plain>();
  else if (*activation == Activation::squared_relu)
    f.template operator()<Source::squared_relu>();
  else
    f.template operator()<Source::swiglu>();
}

// Blocks of a launch that finds a largest magnitude, with work for `wanted`.
unsigned resident_blocks(std::int64_t wanted) {
  return static_cast<unsigned>(min(wanted, std::int64_t{kBlocksEach} * machine().multiprocessors));
}

}  // namespace

template <class S>
int launch(const LargestArgs<S>& args, void* stream) {
  constexpr std::int64_t kBlockElements = std::int64_t{kThreads} * kUnroll * (16 / sizeof(S));
  auto* const on = static_cast<cudaStream_t>(stream);
  clear_kernel<<<1, 1, 0, on>>>(args.amax);
  const unsigned blocks =
      resident_blocks((args.rows * args.width + kBlockElements - 1) / kBlockElements);
  cudaError_t code = cudaGetLastError();
  if (code == cudaSuccess && blocks > 0)
    with_source(args.activation, [&]<Source kSource>() {
      code =
          hopper::launch_dependent(largest_kernel<S, kSource>, dim3(blocks), kThreads, 0, on, args);
    });
  return code;
}

template <class S>
int launch(const JoinLargestArgs<S>& args, void* stream) {
  if (args.rows == 0 || args.width == 0) return cudaSuccess;
  const auto kernel = device::whole_packs<S>({args.width, args.stride}, {args.x})
                          ? join_kernel<S, true>
                          : join_kernel<S, false>;
  kernel<<<resident_blocks((args.rows + kWarps - 1) / kWarps), kThreads, 0,
           static_cast<cudaStream_t>(stream)>>>(args);
  return cudaGetLastError();
}

template <class S>
int launch(const QuantiseArgs<S>& args, void* stream) {
  if (args.rows == 0 || args.width == 0) return cudaSuccess;
  const dim3 blocks(tiles(args.width), tiles(args.rows));
  auto* const on = static_cast<cudaStream_t>(stream);
  with_source(args.activation, [&]<Source kSource>() {
    if (args.dtype == Dtype::e4m3)
      quantise_kernel<S, __NV_E4M3, kSource><<<blocks, kThreads, 0, on>>>(args);
    else
      quantise_kernel<S, __NV_E5M2, kSource><<<blocks, kThreads, 0, on>>>(args);
  });
  return cudaGetLastError();
}

int launch(const TransposeArgs& args, void* stream) {
  if (args.rows == 0 || args.width == 0) return cudaSuccess;
  const dim3 blocks(tiles(args.width), tiles(args.rows));
  transpose_kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(args);
  return cudaGetLastError();
}

template int launch(const LargestArgs<float>&, void*);
template int launch(const LargestArgs<Bf16>&, void*);
template int launch(const JoinLargestArgs<float>&, void*);
template int launch(const JoinLargestArgs<Bf16>&, void*);
template int launch(const QuantiseArgs<float>&, void*);
template int launch(const QuantiseArgs<Bf16>&, void*);

}  // namespace stowage::kernels::fp8
