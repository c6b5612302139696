// Rows of a table by token, and the gradient of the table; formulas in embedding.hpp.
//
// The forward is a gather, bound by memory. The gradient of a row is a sum over the positions of
// its token, so the positions are first listed by token (token_lists.cu). When storing, rows that
// no token names become zero. Then a warp for each slice of a named row adds the dx of its list in
// order. Lists longer than kLongList, as of the commonest words of a text, are left to blocks of
// kLongWarps warps, each of which adds a contiguous part of the list, in narrow slices of a row,
// because there latency counts; the parts meet in order. No atomics on values, the same bits every
// time. fp32 sums.

#include "kernels/access.cuh"
#include "kernels/embedding/embedding_launch.hpp"
#include "kernels/embedding/token_lists.cuh"

namespace stowage::kernels::embedding {
namespace {

using device::Access;
using execution::Bf16;

constexpr int kThreads = 256;
constexpr int kWarpSize = 32;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kPacks = 4;      // accesses of a lane to a row, all in flight
constexpr int kLongPacks = 1;  // for long lists, of which kLongRows rows are in flight
constexpr int kLongRows = 8;
constexpr int kLongWarps = 16;
constexpr int kLongBlocks = 528;  // four on each multiprocessor

// The part of a row that a warp copies or adds: kCount accesses of each lane.
template <class Data, int kCount>
struct Slice {
  static constexpr int kElements = kWarpSize * kCount * Data::kSize;

  __device__ static int column(int slice, int p) {
    return slice * kElements +
           (p * kWarpSize + static_cast<int>(threadIdx.x) % kWarpSize) * Data::kSize;
  }
  static int count_in(std::int64_t width) {
    return static_cast<int>((width + kElements - 1) / kElements);
  }
};

// Which row and slice of it a warp of the grid serves.
struct Task {
  std::int64_t row;
  int slice;
};

__device__ __forceinline__ Task task_of_warp(int slices) {
  const std::int64_t warp = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarpSize;
  return {warp / slices, static_cast<int>(warp % slices)};
}

template <class S, bool kPacked>
__global__ void __launch_bounds__(kThreads) forward_kernel(const Forward<S> args, int slices) {
  using Data = Access<S, kPacked>;
  const auto [t, slice] = task_of_warp(slices);
  if (t >= args.tokens) return;
  const S* from = args.table + args.token[t] * args.width;
  S* to = args.x + t * args.width;
  using Part = Slice<Data, kPacks>;
  typename Data::Bits bits[kPacks];
#pragma unroll
  for (int p = 0; p < kPacks; ++p)
    if (Part::column(slice, p) < args.width) bits[p] = Data::load(from + Part::column(slice, p));
#pragma unroll
  for (int p = 0; p < kPacks; ++p)
    if (Part::column(slice, p) < args.width) Data::store(to + Part::column(slice, p), bits[p]);
}

// sum += the slice of the rows of dx at positions[0 .. count), in order, kRows rows in flight. The
// lanes of the warp read positions together.
template <int kRows, int kCount, class Data, class S>
__device__ __forceinline__ void add_rows(const Backward<S>& args, const std::int32_t* positions,
                                         int count, int slice, float (&sum)[kCount][Data::kSize]) {
  using Part = Slice<Data, kCount>;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  for (int begin = 0; begin < count; begin += kWarpSize) {
    const int mine = begin + lane < count ? positions[begin + lane] : 0;
    for (int i = 0; i < min(kWarpSize, count - begin); i += kRows) {
      typename Data::Bits bits[kRows][kCount];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const S* from = args.dx + __shfl_sync(~0U, mine, (i + r) % kWarpSize) * args.width;
#pragma unroll
        for (int p = 0; p < kCount; ++p)
          if (begin + i + r < count && Part::column(slice, p) < args.width)
            bits[r][p] = Data::load(from + Part::column(slice, p));
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r)
#pragma unroll
        for (int p = 0; p < kCount; ++p) {
          if (begin + i + r >= count || Part::column(slice, p) >= args.width) continue;
          float values[Data::kSize];
          Data::unpack(bits[r][p], values);
#pragma unroll
          for (int k = 0; k < Data::kSize; ++k) sum[p][k] += values[k];
        }
    }
  }
}

// The slice of a row of dtable becomes `sum`, or grows by it.
template <int kCount, class Data, class S>
__device__ __forceinline__ void store_row(const Backward<S>& args, std::int64_t row, int slice,
                                          const float (&sum)[kCount][Data::kSize]) {
  using Out = Access<float, (Data::kSize > 1)>;
#pragma unroll
  for (int p = 0; p < kCount; ++p) {
    const int j = Slice<Data, kCount>::column(slice, p);
    if (j >= args.width) continue;
    float* to = args.dtable + row * args.width + j;
#pragma unroll
    for (int k = 0; k < Data::kSize; k += Out::kSize) {
      float values[Out::kSize] = {};
      if (args.accumulate) Out::unpack(Out::load(to + k), values);
#pragma unroll
      for (int i = 0; i < Out::kSize; ++i) values[i] += sum[p][k + i];
      Out::store(to + k, values);
    }
  }
}

// Rows of the table that no token names become zero.
__global__ void __launch_bounds__(kThreads)
    zero_rows_kernel(std::int64_t vocabulary, std::int64_t width, const std::int32_t* count,
                     float* dtable) {
  const std::int64_t row = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarpSize;
  if (row >= vocabulary || count[row] > 0) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  float* to = dtable + row * width;
  if (width % 4 == 0 && reinterpret_cast<std::uintptr_t>(dtable) % sizeof(float4) == 0) {
    for (std::int64_t j = lane; j < width / 4; j += kWarpSize)
      reinterpret_cast<float4*>(to)[j] = {0, 0, 0, 0};
  } else {
    for (std::int64_t j = lane; j < width; j += kWarpSize) to[j] = 0;
  }
}

// Short lists: a warp for each slice of the row of each token that occurs.
template <class S, bool kPacked>
__global__ void __launch_bounds__(kThreads, 3)
    rows_kernel(const Backward<S> args, const TokenLists lists, int slices) {
  using Data = Access<S, kPacked>;
  const auto [index, slice] = task_of_warp(slices);
  if (index >= lists.totals[kNamed]) return;
  const NamedToken named = lists.named[index];
  if (named.count > kLongList) return;
  float sum[kPacks][Data::kSize] = {};
  add_rows<1, kPacks, Data>(args, lists.ordered + named.start, named.count, slice, sum);
  store_row<kPacks, Data>(args, named.token, slice, sum);
}

// Long lists: a block for each slice of the row of each of their tokens.
template <class S, bool kPacked>
__global__ void __launch_bounds__(kLongWarps* kWarpSize)
    long_rows_kernel(const Backward<S> args, const TokenLists lists, int slices) {
  using Data = Access<S, kPacked>;
  __shared__ float sums[kLongWarps][Data::kSize][kWarpSize];
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int tasks = lists.totals[kLong] * slices;
  for (int task = static_cast<int>(blockIdx.x); task < tasks; task += static_cast<int>(gridDim.x)) {
    const NamedToken named = lists.long_named[task / slices];
    const int slice = task % slices, share = (named.count + kLongWarps - 1) / kLongWarps;
    const int begin = min(named.count, warp * share);
    float sum[kLongPacks][Data::kSize] = {};
    add_rows<kLongRows, kLongPacks, Data>(args, lists.ordered + named.start + begin,
                                          min(share, named.count - begin), slice, sum);
#pragma unroll
    for (int k = 0; k < Data::kSize; ++k) sums[warp][k][lane] = sum[0][k];
    __syncthreads();
    if (warp == 0) {
      for (int other = 1; other < kLongWarps; ++other)
#pragma unroll
        for (int k = 0; k < Data::kSize; ++k) sum[0][k] += sums[other][k][lane];
      store_row<kLongPacks, Data>(args, named.token, slice, sum);
    }
    __syncthreads();
  }
}

unsigned blocks_of(std::int64_t warps) {
  return static_cast<unsigned>((warps + kWarps - 1) / kWarps);
}

template <class S, bool kPacked>
int backward(const Backward<S>& args, cudaStream_t stream) {
  using Data = Access<S, kPacked>;
  const int slices = Slice<Data, kPacks>::count_in(args.width);
  const TokenLists lists = lists_in(args.workspace, args.tokens, args.vocabulary);
  if (const cudaError_t code =
          launch_lists(args.token, args.tokens, args.vocabulary, lists, stream);
      code != cudaSuccess)
    return code;
  if (!args.accumulate && args.vocabulary > 0)
    zero_rows_kernel<<<blocks_of(args.vocabulary), kThreads, 0, stream>>>(
        args.vocabulary, args.width, lists.count, args.dtable);
  if (args.tokens > 0)
    rows_kernel<S, kPacked>
        <<<blocks_of(std::min(args.tokens, args.vocabulary) * slices), kThreads, 0, stream>>>(
            args, lists, slices);
  if (args.tokens > kLongList) {
    const int long_slices = Slice<Data, kLongPacks>::count_in(args.width);
    const std::int64_t most = args.tokens / kLongList * long_slices;
    long_rows_kernel<S, kPacked><<<static_cast<unsigned>(std::min<std::int64_t>(most, kLongBlocks)),
                                   kLongWarps * kWarpSize, 0, stream>>>(args, lists, long_slices);
  }
  return cudaGetLastError();
}

}  // namespace

template <class S>
int launch(const Forward<S>& args, void* handle) {
  if (args.tokens == 0 || args.width == 0) return cudaSuccess;
  const bool packed = device::whole_packs<S>({args.width}, {args.table, args.x});
  const int slices = packed ? Slice<Access<S, true>, kPacks>::count_in(args.width)
                            : Slice<Access<S, false>, kPacks>::count_in(args.width);
  const auto kernel = packed ? forward_kernel<S, true> : forward_kernel<S, false>;
  kernel<<<blocks_of(args.tokens * slices), kThreads, 0, static_cast<cudaStream_t>(handle)>>>(
      args, slices);
  return cudaGetLastError();
}

template <class S>
int launch(const Backward<S>& args, void* handle) {
  if (args.width == 0) return cudaSuccess;
  const auto stream = static_cast<cudaStream_t>(handle);
  return device::whole_packs<S>({args.width}, {args.dx, args.dtable})
             ? backward<S, true>(args, stream)
             : backward<S, false>(args, stream);
}

template int launch(const Forward<float>&, void*);
template int launch(const Forward<Bf16>&, void*);
template int launch(const Backward<float>&, void*);
template int launch(const Backward<Bf16>&, void*);

}  // namespace stowage::kernels::embedding
