// What the attention backward needs of every query row before its products: delta = sum(d_o * o),
// the term that the softmax's normalisation subtracts, and the log-sum-exp in base 2.
//
// Layout: o, d_o (tokens, H, P) bf16; out: lse2 and delta (H, padded rows) fp32. Rows are padded so
// that each document begins at a multiple of 64 rows: tiles of both then are aligned 16-byte
// copies. Padding holds lse2 = +inf, which makes the probabilities of rows past a document's end
// zero. Cost: one read of o and d_o. Deterministic: a fixed butterfly per row and head.

#include "kernels/attention/attention_launch.hpp"
#include "kernels/attention/attention_persistent.cuh"
#include "kernels/attention/attention_schedule.cuh"
#include "kernels/hopper/convert.cuh"
#include "kernels/hopper/dependent_launch.cuh"
#include "kernels/hopper/warp.cuh"

namespace stowage::kernels::attention {
namespace {

constexpr int kThreads = 256;
constexpr int kRows = 16;  // of a block: divides 64, the documents' alignment
constexpr int kBatch = 4;  // pieces of a thread in flight
constexpr float kLog2e = 1.4426950408889634F;

/// The document whose padded rows include `row`; every document owns at least the rows up to the
/// next's.
__device__ __forceinline__ int padded_document(const DeltaParameters& p, int row) {
  if (p.uniform_length > 0) return min(row / padded_first(p, 1), p.documents - 1);
  int low = 0;
  int high = p.documents;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (padded_first(p, middle) <= row ? low : high) = middle;
  }
  return low;
}

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

/// 16 bytes of a row, `column` counts them; advanced without a division.
struct Piece {
  int row, column;

  __device__ __forceinline__ void advance(const Piece& step, int columns) {
    row += step.row;
    column += step.column;
    if (column >= columns) {
      column -= columns;
      ++row;
    }
  }
};

/// A block takes kRows rows; kLanes neighbouring lanes share one head of one row, 16 bytes each.
template <int kLanes>
__global__ void __launch_bounds__(kThreads) attention_delta_kernel(DeltaParameters p) {
  const int thread = static_cast<int>(threadIdx.x);
  join_call();
  if (blockIdx.x == 0) {
    for (int i = thread; i < p.tickets; i += kThreads) p.ticket[i] = 0;
  }
  const int first = static_cast<int>(blockIdx.x) * kRows;
  const int document = padded_document(p, first);
  const int start = p.uniform_length > 0 ? document * p.uniform_length : p.starts[document];
  const int length = p.uniform_length > 0 ? p.uniform_length : p.starts[document + 1] - start;
  const int offset = first - padded_first(p, document);
  const auto* o = static_cast<const std::uint16_t*>(p.o) + (start + offset) * p.o_stride;
  const auto* d_o = static_cast<const std::uint16_t*>(p.d_o) + (start + offset) * p.o_stride;
  Piece at{thread / (p.heads * kLanes), thread % (p.heads * kLanes)};
  const Piece step{kThreads / (p.heads * kLanes), kThreads % (p.heads * kLanes)};
  while (at.row < kRows) {
    Piece mine[kBatch];
    uint4 x[kBatch];
    uint4 y[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      mine[i] = at;
      at.advance(step, p.heads * kLanes);
      const std::int64_t place = mine[i].row * p.o_stride + mine[i].column * 8;
      const bool inside = mine[i].row < kRows && offset + mine[i].row < length;
      x[i] = inside ? __ldcs(reinterpret_cast<const uint4*>(o + place)) : uint4{0, 0, 0, 0};
      y[i] = inside ? __ldcs(reinterpret_cast<const uint4*>(d_o + place)) : uint4{0, 0, 0, 0};
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const float sum = hopper::lanes_sum<kLanes>(dot8(x[i], y[i]));
      const int row = mine[i].row;
      if (thread % kLanes == 0 && row < kRows) {
        const int head = mine[i].column / kLanes;
        const std::int64_t place = static_cast<std::int64_t>(head) * p.padded_rows + first + row;
        const bool inside = offset + row < length;
        p.delta[place] = sum;
        p.lse2[place] = inside ? p.lse[head * p.tokens + start + offset + row] * kLog2e : INFINITY;
      }
    }
  }
}

/// Behind the schedule of packed documents; for equal ones it is the first of its call.
template <int kLanes>
cudaError_t launch(unsigned blocks, const DeltaParameters& parameters, cudaStream_t stream) {
  if (parameters.uniform_length == 0) {
    return hopper::launch_dependent(attention_delta_kernel<kLanes>, dim3(blocks), kThreads, 0,
                                    stream, parameters);
  }
  attention_delta_kernel<kLanes><<<blocks, kThreads, 0, stream>>>(parameters);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_attention_delta(int head_dim, const DeltaParameters& parameters,
                                   cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(parameters.padded_rows / kRows);
  return head_dim == 64 ? launch<8>(blocks, parameters, stream)
                        : launch<16>(blocks, parameters, stream);
}

}  // namespace stowage::kernels::attention
