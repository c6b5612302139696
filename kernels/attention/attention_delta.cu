// First of the attention backward, what it needs of every query row before its products: delta =
// sum(d_o * o), the term that the softmax's normalisation subtracts, and the log-sum-exp in base 2;
// and, of packed documents, their order (attention_order.cuh).
//
// Layout: o, d_o (tokens, H, P) bf16; out: lse2 and delta (H, padded rows) fp32. Rows are padded so
// that each document begins at a multiple of 64 rows: tiles of both then are aligned 16-byte
// copies. Padding, and tokens that are no queries of the call, hold lse2 = +inf, which makes the
// probabilities of these rows zero. Cost: one read of o and d_o. Deterministic: a fixed butterfly
// per row and head.
// Design: a warp takes four rows of as many neighbouring heads as it has lanes for, so that a lane
// has several loads in flight; the butterfly adds up and transposes, so that four lanes store a
// head's four rows together. A block takes 2048 bytes of each of its rows, the next block those
// beside them: many small blocks leave no multiprocessor idle at the end, and those that run at the
// same time read memory on end. The documents' order needs starts alone, as these blocks do: it is
// made by the first blocks beside them.
// Limit: memory.

#include "kernels/attention/attention_launch.hpp"
#include "kernels/attention/attention_order.cuh"
#include "kernels/attention/attention_persistent.cuh"
#include "kernels/attention/attention_schedule.cuh"
#include "kernels/hopper/convert.cuh"
#include "kernels/hopper/warp.cuh"

namespace stowage::kernels::attention {
namespace {

constexpr int kRows = 32;     // of a block: divides 64, the documents' alignment
constexpr int kWarpRows = 4;  // of a warp
constexpr int kThreads = kRows / kWarpRows * 32;
constexpr int kRowBytes = 2048;  // of a block: its heads of a row
constexpr float kLog2e = 1.4426950408889634F;

__device__ __forceinline__ float dot8(uint4 a, uint4 b) {
  const std::uint32_t x[4] = {a.x, a.y, a.z, a.w};
  const std::uint32_t y[4] = {b.x, b.y, b.z, b.w};
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum += hopper::unpack_low(x[i]) * hopper::unpack_low(y[i]);
    sum += hopper::unpack_high(x[i]) * hopper::unpack_high(y[i]);
  }
  return sum;
}

/// The first 16 bytes of a head of a row.
__device__ __forceinline__ const uint4* first_piece(const void* base, const HeadStrides& strides,
                                                    int sequence, std::int64_t row, int head) {
  return reinterpret_cast<const uint4*>(static_cast<const std::uint16_t*>(base) +
                                        sequence * strides.batch + row * strides.row +
                                        head * strides.head);
}

/// A load that stays ahead of what follows it, so that all of a thread's are in flight together.
__device__ __forceinline__ uint4 load_once(const uint4* from) {
  uint4 value;
  asm volatile("ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from));
  return value;
}

/// The sums over kLanes neighbouring lanes of four values each; the lane gets that of value
/// `lane % 4`.
template <int kLanes>
__device__ __forceinline__ float sum_and_transpose(const float (&value)[kWarpRows]) {
  const int lane = static_cast<int>(threadIdx.x);
  const auto halve = [](bool upper, float low, float high, int distance) {
    const float other = __shfl_xor_sync(0xFFFFFFFFU, upper ? low : high, distance);
    return (upper ? high : low) + other;
  };
  const float even = halve(lane & 1, value[0], value[1], 1);
  const float odd = halve(lane & 1, value[2], value[3], 1);
  float sum = halve(lane & 2, even, odd, 2);
#pragma unroll
  for (int distance = 4; distance < kLanes; distance *= 2) {
    sum += __shfl_xor_sync(0xFFFFFFFFU, sum, distance);
  }
  return sum;
}

/// Heads of a block.
template <int kLanes>
constexpr int kBlockHeads = kRowBytes / (kLanes * 16);

/// The first blocks, `ranking` of them, order documents. Each of the others takes kRows rows of
/// some heads, a warp kWarpRows of them; kLanes neighbouring lanes share one head of one row, 16
/// bytes each.
template <int kLanes>
__global__ void __launch_bounds__(kThreads)
    attention_delta_kernel(DeltaParameters p, ScheduleTables tables, int ranking) {
  constexpr int kHeads = 32 / kLanes;  // of a warp at a time
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int piece = thread % kLanes;
  join_call();
  const int all_threads = static_cast<int>(gridDim.x) * kThreads;
  for (int i = static_cast<int>(blockIdx.x) * kThreads + thread; i < p.tickets; i += all_threads)
    p.ticket[i] = 0;
  const int block = static_cast<int>(blockIdx.x) - ranking;
  if (block < 0) {
    rank_document<true, stored_rows(8 * kLanes)>(
        tables, static_cast<int>(blockIdx.x) * ranked_by(kThreads) + warp);
    return;
  }
  const int sections = (p.heads + kBlockHeads<kLanes> - 1) / kBlockHeads<kLanes>;
  const int first_head = block % sections * kBlockHeads<kLanes>;
  const int end_head = min(first_head + kBlockHeads<kLanes>, p.heads);
  const int first = block / sections * kRows;
  const int document = padded_document(p, first);
  const bool equal = p.uniform_length > 0;
  const int sequence = equal ? document : 0;
  const int start = equal ? 0 : start_of(p, document);
  const int length = equal ? p.uniform_length : start_of(p, document + 1) - start;
  const int offset = first - padded_first(p, document);
  const int row = warp * kWarpRows;
  const int in_sequence = start + offset + row;
  // Of the rows from this one on: those of the document that are queries.
  const int begin = max(0, p.queries.first - in_sequence);
  const int end = min(min(length - offset - row, p.queries.end - in_sequence), kWarpRows);
  const std::int64_t query =
      std::int64_t{sequence} * p.uniform_length + in_sequence - p.queries.first;
  const std::int64_t queries = p.queries.end - p.queries.first;
  for (int base = first_head; base < end_head; base += kHeads) {
    const int head = min(base + thread % 32 / kLanes, end_head - 1);
    const bool mine = piece < kWarpRows && base + thread % 32 / kLanes < end_head;
    float sum[kWarpRows] = {0, 0, 0, 0};
    float lse2 = INFINITY;
    if (begin < end) {
      const auto* o = first_piece(p.o, p.o_strides, sequence, in_sequence, head) + piece;
      const auto* d_o = first_piece(p.d_o, p.d_o_strides, sequence, in_sequence, head) + piece;
      uint4 x[kWarpRows];
      uint4 y[kWarpRows];
#pragma unroll
      for (int i = 0; i < kWarpRows; ++i) {
        const std::int64_t in_document = max(begin, min(i, end - 1));
        x[i] = load_once(o + in_document * (p.o_strides.row / 8));
        y[i] = load_once(d_o + in_document * (p.d_o_strides.row / 8));
      }
      if (mine && piece >= begin && piece < end)
        lse2 = __ldg(p.lse + head * queries + query + piece) * kLog2e;
#pragma unroll
      for (int i = 0; i < kWarpRows; ++i) sum[i] = dot8(x[i], y[i]);
    }
    const float delta = sum_and_transpose<kLanes>(sum);
    if (mine) {
      const std::int64_t place = head * p.padded_rows + first + row + piece;
      p.delta[place] = delta;
      p.lse2[place] = lse2;
    }
  }
}

template <int kLanes>
cudaError_t launch(const DeltaParameters& p, const ScheduleTables& tables, cudaStream_t stream) {
  const int ranking = tables.cu_seqlens == nullptr ? 0 : ranking_blocks(tables.documents, kThreads);
  const int sections = (p.heads + kBlockHeads<kLanes> - 1) / kBlockHeads<kLanes>;
  const int rows = static_cast<int>(p.padded_rows / kRows);  // whole
  attention_delta_kernel<kLanes>
      <<<ranking + rows * sections, kThreads, 0, stream>>>(p, tables, ranking);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_attention_delta(int head_dim, const DeltaParameters& parameters,
                                   const ScheduleTables& tables, cudaStream_t stream) {
  switch (head_dim) {
    case 64:
      return launch<8>(parameters, tables, stream);
    case 128:
      return launch<16>(parameters, tables, stream);
    case 256:
      return launch<32>(parameters, tables, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace stowage::kernels::attention
