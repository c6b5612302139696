// Rows of tokens to rows of experts and back.
//
//   gather:  xs[token_row[t, r]] = x[t]        combine: out[t] = sum_r ys[token_row[t, r]]
//
// A lane has 16 bytes of a token's row, elements where a row is no multiple of 16 bytes. In gather
// a warp has 32 such parts of it: many small warps in the order of addresses are faster than few.
// In combine it has the row, several accesses in flight. So a token's row is read once and written
// R times, or the other way round, whatever the balance of the experts: combine adds its R rows in
// slot order, in fp32, rounded once, and no row has two owners.
// Long rows, of which shared memory holds several tokens', are carried whole by the copy engine
// instead: rows_bulk.cu.
// Cost: (R + 1) rows a token. Limit: R scattered streams, 89 to 96 % of a copy of as many bytes.

#include "kernels/moe/permute.hpp"
#include "kernels/moe/rows_bulk.hpp"
#include "kernels/pack.cuh"

namespace stowage::kernels::moe {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kCombineRows = 4;   ///< rows in flight, of …
constexpr int kCombineLoads = 2;  ///< … this many vectors

/// Read once: the first to leave the caches.
__device__ __forceinline__ uint4 load_streaming(const uint4* from) { return __ldcs(from); }
template <class S>
__device__ __forceinline__ S load_streaming(const S* from) {
  return *from;
}

/// V is 16 bytes or one element; `columns` counts them, 32 of which a warp carries.
template <class V>
__global__ void __launch_bounds__(kThreads)
    gather(std::int64_t tokens, int topk, std::int64_t columns, int pieces, const V* __restrict__ x,
           const std::int32_t* __restrict__ token_row, V* __restrict__ xs) {
  const std::int64_t warp = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  const std::int64_t t = warp / pieces, column = warp % pieces * 32 + threadIdx.x % 32;
  if (t >= tokens || column >= columns) return;
  const std::int32_t* rows = token_row + t * topk;
  const V value = load_streaming(x + t * columns + column);
  for (int r = 0; r < topk; ++r)
    if (rows[r] >= 0) xs[rows[r] * columns + column] = value;
}

/// The sums of kLoads vectors of a token's rows, or of one element.
template <class S, bool kPacked>
struct Summand {
  using V = std::conditional_t<kPacked, uint4, S>;
  static constexpr int kElements = kPacked ? device::kPackSize<S> : 1;

  float sum[kElements] = {};

  __device__ __forceinline__ void add(const V& value) {
    if constexpr (kPacked) {
      float values[kElements];
      device::unpack<S>(value, values);
#pragma unroll
      for (int i = 0; i < kElements; ++i) sum[i] += values[i];
    } else {
      sum[0] += device::to_float(value);
    }
  }
  __device__ __forceinline__ V rounded() const {
    if constexpr (kPacked)
      return device::pack<S>(sum);
    else
      return device::round_to<S>(sum[0]);
  }
};

template <class S, bool kPacked>
__global__ void __launch_bounds__(kThreads)
    combine(std::int64_t tokens, int topk, std::int64_t columns,
            const typename Summand<S, kPacked>::V* __restrict__ ys,
            const std::int32_t* __restrict__ token_row,
            typename Summand<S, kPacked>::V* __restrict__ out, bool accumulate) {
  using V = typename Summand<S, kPacked>::V;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t t = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (t >= tokens) return;
  const std::int32_t* rows = token_row + t * topk;
  V* to = out + t * columns;
  for (std::int64_t base = lane; base < columns; base += 32 * kCombineLoads) {
    Summand<S, kPacked> sums[kCombineLoads];
    for (int first = 0; first < topk; first += kCombineRows) {
      V values[kCombineRows][kCombineLoads];
      std::int64_t row[kCombineRows];
#pragma unroll
      for (int r = 0; r < kCombineRows; ++r) {
        row[r] = first + r < topk ? rows[first + r] : -1;
#pragma unroll
        for (int i = 0; i < kCombineLoads; ++i)
          if (row[r] >= 0 && base + 32 * i < columns)
            values[r][i] = ys[row[r] * columns + base + 32 * i];
      }
#pragma unroll
      for (int r = 0; r < kCombineRows; ++r) {
        if (row[r] < 0) continue;
#pragma unroll
        for (int i = 0; i < kCombineLoads; ++i) sums[i].add(values[r][i]);
      }
    }
#pragma unroll
    for (int i = 0; i < kCombineLoads; ++i) {
      if (base + 32 * i >= columns) break;
      if (accumulate) sums[i].add(to[base + 32 * i]);
      to[base + 32 * i] = sums[i].rounded();
    }
  }
}

unsigned blocks_of(std::int64_t warps) {
  return static_cast<unsigned>((warps + kWarps - 1) / kWarps);
}

/// The whole row in 16-byte pieces?
template <class S>
bool packed(std::int64_t width, const void* a, const void* b) {
  const auto address = reinterpret_cast<std::uintptr_t>(a) | reinterpret_cast<std::uintptr_t>(b);
  return width % device::kPackSize<S> == 0 && address % 16 == 0;
}

}  // namespace

}  // namespace stowage::kernels::moe

namespace stowage::kernels {

template <class S>
int GatherRows::launch(const Operands<Pointers<S>>& o, void* stream) const {
  using namespace moe;
  if (tokens == 0 || width == 0) return cudaSuccess;
  const std::int64_t row_bytes = width * std::int64_t{sizeof(S)};
  if (packed<S>(width, o.x, o.xs) && bulk_rows(tokens, topk, row_bytes))
    return launch_bulk_gather(tokens, topk, row_bytes, o.x, o.token_row, o.xs, stream);
  const auto gather_as = [&]<class V>(const V* from, V* to) -> int {
    const std::int64_t columns = width * std::int64_t{sizeof(S)} / std::int64_t{sizeof(V)};
    const std::int64_t pieces = (columns + 31) / 32;
    gather<<<blocks_of(tokens * pieces), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        tokens, static_cast<int>(topk), columns, static_cast<int>(pieces), from, o.token_row, to);
    return cudaGetLastError();
  };
  if (packed<S>(width, o.x, o.xs))
    return gather_as(reinterpret_cast<const uint4*>(o.x), reinterpret_cast<uint4*>(o.xs));
  return gather_as(o.x, o.xs);
}

template <class S>
int CombineRows::launch(const Operands<Pointers<S>>& o, void* stream) const {
  using namespace moe;
  if (tokens == 0 || width == 0) return cudaSuccess;
  const std::int64_t row_bytes = width * std::int64_t{sizeof(S)};
  if (packed<S>(width, o.ys, o.out) && bulk_rows(tokens, topk, row_bytes))
    return launch_bulk_combine(tokens, topk, row_bytes, o.ys, o.token_row, o.out, accumulate,
                               stream);
  const unsigned blocks = blocks_of(tokens);
  const auto on = static_cast<cudaStream_t>(stream);
  if (packed<S>(width, o.ys, o.out))
    combine<S, true><<<blocks, kThreads, 0, on>>>(tokens, static_cast<int>(topk),
                                                  width / device::kPackSize<S>,
                                                  reinterpret_cast<const uint4*>(o.ys), o.token_row,
                                                  reinterpret_cast<uint4*>(o.out), accumulate);
  else
    combine<S, false><<<blocks, kThreads, 0, on>>>(tokens, static_cast<int>(topk), width, o.ys,
                                                   o.token_row, o.out, accumulate);
  return cudaGetLastError();
}

template int GatherRows::launch(const Operands<Pointers<float>>&, void*) const;
template int GatherRows::launch(const Operands<Pointers<execution::Bf16>>&, void*) const;
template int CombineRows::launch(const Operands<Pointers<float>>&, void*) const;
template int CombineRows::launch(const Operands<Pointers<execution::Bf16>>&, void*) const;

}  // namespace stowage::kernels
