#pragma once

#include "kernels/ssd/ssd_device.cuh"

/// The record of one chunk and head (Row in ssd_launch.hpp) and the spans of a chunk, by one warp
/// with two tokens a lane: for the prepare kernel, and for kernels that do its work on the way.
namespace stowage::kernels::ssd {

/// Reach of the documents of a chunk from bit t = "token t begins a document".
__device__ __forceinline__ Span span_of(std::uint64_t begins, int t) {
  const std::uint64_t until = begins & (~0ULL >> (63 - t));
  const std::uint64_t after = t == 63 ? 0 : begins >> (t + 1);
  Span span;
  span.start = static_cast<std::uint8_t>(until == 0 ? 0 : 64 - __clzll(until));
  span.end = static_cast<std::uint8_t>(after == 0 ? 63 : t + __ffsll(after) - 1);
  return span;
}

/// What a lane's two tokens contribute to a chunk's state, and what the chunk leaves of the state
/// before it.
struct Contribution {
  float2 weight;  ///< kRowWeight of tokens 2 lane, 2 lane + 1
  float decay;    ///< kRowIn of the last token
};

/// What step sizes of one head depend on.
struct HeadSteps {
  float bias, a2;  ///< dt_bias; A log2(e)

  HeadSteps() = default;
  __device__ __forceinline__ HeadSteps(const PrepareParameters& p, int head)
      : bias(parameter(p.dt_bias, head, p.bf16_parameters)),
        a2(-expf(parameter(p.a_log, head, p.bf16_parameters)) * kLog2E) {}
};

/// Makes a chunk's records of kCount heads at once, from dt_raw of the lane's two tokens and their
/// spans, and writes those with records[i] != nullptr. All lanes of a warp call it.
template <int kCount>
__device__ __forceinline__ void make_records(Contribution (&result)[kCount],
                                             const PrepareParameters& p,
                                             const HeadSteps (&steps)[kCount],
                                             const float2 (&raw)[kCount], int chunk,
                                             const Span (&spans)[2], int lane,
                                             float* const (&records)[kCount]) {
  constexpr unsigned kAll = 0xFFFFFFFFU;
  float2 dt[kCount];
  float sum[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int t = chunk * kChunk + 2 * lane;
    const float first = fminf(fmaxf(softplus(raw[i].x + steps[i].bias), p.dt_min), p.dt_max);
    const float second = fminf(fmaxf(softplus(raw[i].y + steps[i].bias), p.dt_min), p.dt_max);
    dt[i] = make_float2(t < p.sizes.tokens ? first : 0, t + 1 < p.sizes.tokens ? second : 0);
    sum[i] = (dt[i].x + dt[i].y) * steps[i].a2;
  }
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float before = __shfl_up_sync(kAll, sum[i], step);
      if (lane >= step) sum[i] += before;
    }
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float last = __shfl_sync(kAll, sum[i], 31);
    const float a[2] = {sum[i] - dt[i].y * steps[i].a2, sum[i]};
    float2 rows[kRows];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const float step = k == 0 ? dt[i].x : dt[i].y;
      const float out = spans[k].end == kChunk - 1 ? ex2(last - a[k]) : 0;
      const float values[kRows] = {
          a[k] - lg2(step), step * out, spans[k].start == 0 ? ex2(a[k]) : 0, a[k], step, out};
#pragma unroll
      for (int row = 0; row < kRows; ++row) (k == 0 ? rows[row].x : rows[row].y) = values[row];
    }
    if (records[i] != nullptr) {
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        if (row * kChunk == kForwardRecordFloats && p.sizes.record_floats == row * kChunk) break;
        reinterpret_cast<float2*>(records[i] + row * kChunk)[lane] = rows[row];
      }
    }
    result[i] = {rows[kRowWeight], __shfl_sync(kAll, rows[kRowIn].y, 31)};
  }
}

}  // namespace stowage::kernels::ssd
