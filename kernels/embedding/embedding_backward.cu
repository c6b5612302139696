// The gradient of a table of rows by token; formula in embedding.hpp.
//
// A row's gradient is the sum of the dx of the positions of its token, so the positions are first
// listed by token (token_lists.cu). Then one launch makes every row, bound by memory: when storing,
// a warp for each row of the table, which becomes zero or, slice by slice, the sum of its list;
// when adding, a warp for each named row. A list of up to kLongList positions is put in order by
// the warp that adds it, a position a lane. Longer ones, as of the commonest words of a text, are
// left to the first blocks of the grid, so that they overlap with the others: in narrow slices of a
// row, because there latency counts, each warp adds a contiguous part of the ordered list, and the
// parts meet in order. No atomics on values, the same bits every time. fp32 sums.
//
// A lane holds 4 neighbouring elements, so that both its loads and its fp32 stores of 16 bytes lie
// beside its neighbours'. The launches overlap each other's start.

#include "kernels/access.cuh"
#include "kernels/embedding/embedding_launch.hpp"
#include "kernels/embedding/embedding_slice.cuh"
#include "kernels/embedding/token_lists.cuh"
#include "kernels/hopper/dependent_launch.cuh"
#include "kernels/hopper/griddepcontrol.cuh"

namespace stowage::kernels::embedding {
namespace {

using execution::Bf16;
using hopper::griddepcontrol_wait;

constexpr int kLoads = 4;      // of a lane from a row, all in flight
constexpr int kLongLoads = 1;  // for long lists, of which kLongRows rows are in flight
constexpr int kLongRows = 8;
constexpr int kLongBlocks = 528;  // four on each multiprocessor

// Neighbouring elements of dx and dtable that a lane moves at once: 4, or single ones where rows
// are not whole packs.
template <class S, bool kPacked>
struct Piece {
  static constexpr int kSize = kPacked ? 4 : 1;
  using Bits = std::conditional_t<kPacked, std::conditional_t<sizeof(S) == 2, uint2, uint4>, S>;

  __device__ __forceinline__ static Bits load(const S* from) {
    return *reinterpret_cast<const Bits*>(from);
  }
  __device__ __forceinline__ static void add(const Bits& bits, float (&sum)[kSize]) {
    if constexpr (!kPacked) {
      sum[0] += device::to_float(bits);
    } else if constexpr (sizeof(S) == 2) {
      sum[0] += hopper::unpack_low(bits.x);
      sum[1] += hopper::unpack_high(bits.x);
      sum[2] += hopper::unpack_low(bits.y);
      sum[3] += hopper::unpack_high(bits.y);
    } else {
      float values[kSize];
      device::unpack<float>(bits, values);
#pragma unroll
      for (int k = 0; k < kSize; ++k) sum[k] += values[k];
    }
  }
};

// sum += the slice of the rows of dx at the positions that the lanes hold, lane 0's first, kRows
// rows in flight.
template <int kRows, class P, int kCount, class S>
__device__ __forceinline__ void add_rows(const Backward<S>& args, std::int32_t position, int count,
                                         int slice, float (&sum)[kCount][P::kSize]) {
  using Part = Slice<P, kCount>;
  for (int i = 0; i < count; i += kRows) {
    typename P::Bits bits[kRows][kCount];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const S* from =
          args.dx + std::int64_t{__shfl_sync(~0U, position, (i + r) % kWarpSize)} * args.width;
#pragma unroll
      for (int p = 0; p < kCount; ++p)
        if (i + r < count && Part::column(slice, p) < args.width)
          bits[r][p] = P::load(from + Part::column(slice, p));
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int p = 0; p < kCount; ++p)
        if (i + r < count && Part::column(slice, p) < args.width) P::add(bits[r][p], sum[p]);
  }
}

// The slice of a row of dtable becomes `sum`, or grows by it.
template <class P, int kCount, class S>
__device__ __forceinline__ void store_row(const Backward<S>& args, std::int64_t row, int slice,
                                          const float (&sum)[kCount][P::kSize]) {
  using Out = device::Access<float, (P::kSize > 1)>;
#pragma unroll
  for (int p = 0; p < kCount; ++p) {
    const int j = Slice<P, kCount>::column(slice, p);
    if (j >= args.width) continue;
    float* to = args.dtable + row * args.width + j;
    float values[P::kSize] = {};
    if (args.accumulate) Out::unpack(Out::load(to), values);
#pragma unroll
    for (int k = 0; k < P::kSize; ++k) values[k] += sum[p][k];
    Out::store(to, values);
  }
}

// Of a list of up to 32 positions in any order, a lane each, the one whose rank is the lane.
__device__ __forceinline__ std::int32_t in_order(std::int32_t position, int count) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  int rank = 0;
  for (int i = 0; i < count; ++i) rank += __shfl_sync(~0U, position, i) < position ? 1 : 0;
  std::int32_t ordered = 0;
  for (int i = 0; i < count; ++i) {
    const std::int32_t other = __shfl_sync(~0U, position, i);
    if (__shfl_sync(~0U, rank, i) == lane) ordered = other;
  }
  return ordered;
}

// A row with a short list.
template <class P, class S>
__device__ __forceinline__ void make_row(const Backward<S>& args, const TokenLists& lists,
                                         std::int64_t row, int count) {
  using Part = Slice<P, kLoads>;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  std::int32_t position = lane < count ? lists.list[lists.start[row] + lane] : 0;
  if (count > 1) position = in_order(position, count);
  for (int slice = 0; slice * std::int64_t{Part::kElements} < args.width; ++slice) {
    float sum[kLoads][P::kSize] = {};
    add_rows<1, P>(args, position, count, slice, sum);
    store_row<P>(args, row, slice, sum);
  }
}

// A row without positions.
template <class P, class S>
__device__ __forceinline__ void clear_row(const Backward<S>& args, std::int64_t row) {
  using Out = device::Access<float, (P::kSize > 1)>;
  const float zeros[P::kSize] = {};
  float* to = args.dtable + row * args.width;
#pragma unroll 8
  for (std::int64_t j = static_cast<int>(threadIdx.x) % kWarpSize * P::kSize; j < args.width;
       j += kWarpSize * P::kSize)
    Out::store(to + j, zeros);
}

// The rows with long lists: a block for each narrow slice.
template <class P, class S>
__device__ __forceinline__ void make_long_rows(const Backward<S>& args, const TokenLists& lists,
                                               int blocks, int slices) {
  __shared__ float sums[kWarps][P::kSize][kWarpSize];
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int tasks = lists.totals[kLong] * slices;
  for (int task = static_cast<int>(blockIdx.x); task < tasks; task += blocks) {
    const NamedToken named = lists.long_named[task / slices];
    const int slice = task % slices, share = (named.count + kWarps - 1) / kWarps;
    const int end = min(named.count, (warp + 1) * share);
    float sum[kLongLoads][P::kSize] = {};
    for (int begin = warp * share; begin < end; begin += kWarpSize) {
      const std::int32_t position =
          begin + lane < end ? lists.ordered[named.start + begin + lane] : 0;
      add_rows<kLongRows, P>(args, position, min(kWarpSize, end - begin), slice, sum);
    }
#pragma unroll
    for (int k = 0; k < P::kSize; ++k) sums[warp][k][lane] = sum[0][k];
    __syncthreads();
    if (warp == 0) {
      for (int other = 1; other < kWarps; ++other)
#pragma unroll
        for (int k = 0; k < P::kSize; ++k) sum[0][k] += sums[other][k][lane];
      store_row<P>(args, named.token, slice, sum);
    }
    __syncthreads();
  }
}

template <class S, bool kPacked>
__global__ void __launch_bounds__(kThreads, 3)
    backward_kernel(const Backward<S> args, const TokenLists lists, int long_blocks,
                    int long_slices) {
  using P = Piece<S, kPacked>;
  griddepcontrol_wait();
  if (static_cast<int>(blockIdx.x) < long_blocks) {
    make_long_rows<P>(args, lists, long_blocks, long_slices);
    return;
  }
  std::int64_t row = (std::int64_t{blockIdx.x} - long_blocks) * kWarps + threadIdx.x / kWarpSize;
  if (row >= (args.accumulate ? lists.totals[kNamed] : args.vocabulary)) return;
  if (args.accumulate) row = lists.named[row].token;
  const int count = lists.count[row];
  if (count == 0)
    clear_row<P>(args, row);
  else if (count <= kLongList)
    make_row<P>(args, lists, row, count);
}

template <class S, bool kPacked>
int start(const Backward<S>& args, cudaStream_t stream) {
  using P = Piece<S, kPacked>;
  const TokenLists lists = lists_in(args.workspace, args.tokens, args.vocabulary);
  if (const cudaError_t code =
          launch_lists(args.token, args.tokens, args.vocabulary, lists, stream);
      code != cudaSuccess)
    return code;
  const int long_slices = Slice<P, kLongLoads>::count_in(args.width);
  const auto long_blocks = static_cast<int>(
      std::min<std::int64_t>(args.tokens / (kLongList + 1) * long_slices, kLongBlocks));
  const std::int64_t rows =
      args.accumulate ? std::min(args.tokens, args.vocabulary) : args.vocabulary;
  const std::int64_t blocks = long_blocks + (rows + kWarps - 1) / kWarps;
  if (blocks == 0) return cudaSuccess;
  return hopper::launch_dependent(backward_kernel<S, kPacked>, static_cast<unsigned>(blocks),
                                  kThreads, 0, stream, args, lists, long_blocks, long_slices);
}

}  // namespace

template <class S>
int launch(const Backward<S>& args, void* handle) {
  if (args.width == 0) return cudaSuccess;
  const auto stream = static_cast<cudaStream_t>(handle);
  return device::whole_packs<S>({args.width}, {args.dx, args.dtable})
             ? start<S, true>(args, stream)
             : start<S, false>(args, stream);
}

template int launch(const Backward<float>&, void*);
template int launch(const Backward<Bf16>&, void*);

}  // namespace stowage::kernels::embedding
