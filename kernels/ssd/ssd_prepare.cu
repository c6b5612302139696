// Step sizes and decays of all tokens, by chunk of 64 and head.
//
//   dt = clamp(softplus(dt_raw + dt_bias)), A = -exp(a_log), a = inclusive sum of dt A log2(e)
//
// and the factors that the other kernels take from it (Row in ssd_launch.hpp), all <= dt or <= 1:
// exponents are never positive. Documents: the spans of a chunk come from one ballot over seq_idx.
// One block a chunk and 16 heads, one warp a head at a time, two tokens a lane; sums in a fixed
// order. Reads 2 H + 4 bytes a token, writes 24 H: small beside X, and read back from L2.

#include <cuda_bf16.h>

#include "kernels/hopper/convert.cuh"
#include "kernels/ssd/ssd_device.cuh"
#include "kernels/ssd/ssd_launch.hpp"

namespace stowage::kernels::ssd {
namespace {

constexpr int kThreads = 256;
constexpr int kHeads = 16;  ///< of a block: a 32-byte sector of dt_raw
constexpr unsigned kAll = 0xFFFFFFFFU;

/// Reach of the documents of a chunk from bit t = "token t begins a document".
__device__ Span span_of(std::uint64_t begins, int t) {
  const std::uint64_t until = begins & (~0ULL >> (63 - t));
  const std::uint64_t after = t == 63 ? 0 : begins >> (t + 1);
  Span span;
  span.start = static_cast<std::uint8_t>(until == 0 ? 0 : 64 - __clzll(until));
  span.end = static_cast<std::uint8_t>(after == 0 ? 63 : t + __ffsll(after) - 1);
  return span;
}

__global__ void __launch_bounds__(kThreads) prepare(const PrepareParameters p) {
  griddepcontrol_launch_dependents();
  const int chunk = blockIdx.x;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int first = chunk * kChunk;
  __shared__ unsigned begins_words[2];
  __shared__ float tile[kHeads][kChunk + 2];

  const auto* raw = static_cast<const __nv_bfloat16*>(p.dt_raw);
  const int head0 = static_cast<int>(blockIdx.y) * kHeads;
  const int heads = min(kHeads, p.sizes.heads - head0);
  for (int i = static_cast<int>(threadIdx.x); i < kChunk * kHeads; i += kThreads) {
    const int head = i % kHeads, t = i / kHeads;
    const bool inside = head < heads && first + t < p.sizes.tokens;
    const std::int64_t at = (first + t) * p.dt_stride + head0 + head;
    tile[head][t] = inside ? __bfloat162float(raw[at]) : 0;
  }
  if (threadIdx.x < kChunk) {
    const int t = first + threadIdx.x;
    const bool inside = p.seq_idx != nullptr && t > 0 && t < p.sizes.tokens;
    const bool begins = inside && p.seq_idx[t] != p.seq_idx[t - 1];
    const unsigned word = __ballot_sync(kAll, begins);
    if (lane == 0) begins_words[warp] = word;
  }
  __syncthreads();
  const std::uint64_t begins =
      begins_words[0] | (static_cast<std::uint64_t>(begins_words[1]) << 32);
  const Span early = span_of(begins, 2 * lane);
  const Span late = span_of(begins, 2 * lane + 1);
  if (warp == 0 && blockIdx.y == 0) {
    p.spans[first + 2 * lane] = early;
    p.spans[first + 2 * lane + 1] = late;
  }

  for (int h = warp; h < heads; h += kThreads / 32) {
    const int head = head0 + h;
    const float bias = parameter(p.dt_bias, head, p.bf16_parameters);
    const float a2 = -expf(parameter(p.a_log, head, p.bf16_parameters)) * kLog2E;
    float dt[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int t = first + 2 * lane + k;
      dt[k] = 0;
      if (t < p.sizes.tokens) {
        const float x = tile[h][2 * lane + k] + bias;
        dt[k] = fminf(fmaxf(softplus(x), p.dt_min), p.dt_max);
      }
    }
    float sum = (dt[0] + dt[1]) * a2;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const float before = __shfl_up_sync(kAll, sum, step);
      if (lane >= step) sum += before;
    }
    const float a[2] = {sum - dt[1] * a2, sum};
    const float last = __shfl_sync(kAll, sum, 31);
    float2 rows[kRows];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const Span span = k == 0 ? early : late;
      const float out = span.end == kChunk - 1 ? ex2(last - a[k]) : 0;
      const float values[kRows] = {
          a[k] - lg2(dt[k]), dt[k] * out, span.start == 0 ? ex2(a[k]) : 0, a[k], dt[k], out};
#pragma unroll
      for (int row = 0; row < kRows; ++row) (k == 0 ? rows[row].x : rows[row].y) = values[row];
    }
    float* record =
        p.records + (static_cast<std::int64_t>(chunk) * p.sizes.heads + head) * kRecordFloats;
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      reinterpret_cast<float2*>(record + row * kChunk)[lane] = rows[row];
    }
  }
}

}  // namespace

cudaError_t launch_prepare(const PrepareParameters& parameters, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(parameters.sizes.chunks),
                  static_cast<unsigned>((parameters.sizes.heads + kHeads - 1) / kHeads));
  prepare<<<grid, kThreads, 0, stream>>>(parameters);
  return cudaGetLastError();
}

}  // namespace stowage::kernels::ssd
