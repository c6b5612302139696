// Step sizes and decays of all tokens, by chunk of 64 and head.
//
//   dt = clamp(softplus(dt_raw + dt_bias)), A = -exp(a_log), a = inclusive sum of dt A log2(e)
//
// and the factors that the other kernels take from it (Row in ssd_launch.hpp), all <= dt or <= 1:
// exponents are never positive. Documents: the spans of a chunk come from one ballot over seq_idx.
// One block a chunk and 16 heads, a warp two of them, two tokens a lane; sums in a fixed order.
// Reads 2 H + 4 bytes a token, writes 24 H, in the forward 16 H: small beside X, and read back from
// L2.

#include <cuda_bf16.h>

#include "kernels/ssd/ssd_device.cuh"
#include "kernels/ssd/ssd_record.cuh"

namespace stowage::kernels::ssd {
namespace {

constexpr int kThreads = 256;
constexpr int kHeads = 16;                        ///< of a block: a 32-byte sector of dt_raw
constexpr int kCount = kHeads / (kThreads / 32);  ///< heads of a warp, side by side
constexpr int kBlockRows = kThreads / kHeads;     ///< tokens that the block loads at once
constexpr int kTokens = kChunk / kBlockRows;      ///< of a thread

__global__ void __launch_bounds__(kThreads) prepare(const PrepareParameters p) {
  griddepcontrol_launch_dependents();
  const int chunk = blockIdx.x;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int first = chunk * kChunk;
  __shared__ unsigned begins_words[2];
  __shared__ float tile[kHeads][kChunk + 2];

  // All loads are issued before any is waited for.
  const int head0 = static_cast<int>(blockIdx.y) * kHeads;
  const int heads = min(kHeads, p.sizes.heads - head0);
  const int token = first + static_cast<int>(threadIdx.x / kHeads);
  const int column = static_cast<int>(threadIdx.x % kHeads);
  const auto* raw = static_cast<const __nv_bfloat16*>(p.dt_raw) + token * p.dt_stride + head0;
  float values[kTokens];
#pragma unroll
  for (int i = 0; i < kTokens; ++i) {
    const bool inside = column < heads && token + i * kBlockRows < p.sizes.tokens;
    values[i] = inside ? __bfloat162float(raw[i * kBlockRows * p.dt_stride + column]) : 0;
  }
  const int t = first + static_cast<int>(threadIdx.x % kChunk);
  const bool inside = p.seq_idx != nullptr && t > 0 && t < p.sizes.tokens;
  const int document = inside ? p.seq_idx[t] : 0, before = inside ? p.seq_idx[t - 1] : 0;
  HeadSteps steps[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    steps[i] = HeadSteps(p, head0 + min(warp * kCount + i, heads - 1));
  }
#pragma unroll
  for (int i = 0; i < kTokens; ++i) {
    tile[column][static_cast<int>(threadIdx.x / kHeads) + i * kBlockRows] = values[i];
  }
  const unsigned word = __ballot_sync(0xFFFFFFFFU, document != before);
  if (warp < 2 && lane == 0) begins_words[warp] = word;
  __syncthreads();
  const std::uint64_t begins =
      begins_words[0] | (static_cast<std::uint64_t>(begins_words[1]) << 32);
  const Span spans[] = {span_of(begins, 2 * lane), span_of(begins, 2 * lane + 1)};
  if (warp == 0 && blockIdx.y == 0) {
    p.spans[first + 2 * lane] = spans[0];
    p.spans[first + 2 * lane + 1] = spans[1];
  }

  float2 raw_steps[kCount];
  float* records[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int h = warp * kCount + i, read = min(h, heads - 1);
    raw_steps[i] = make_float2(tile[read][2 * lane], tile[read][2 * lane + 1]);
    const std::int64_t record = static_cast<std::int64_t>(chunk) * p.sizes.heads + head0 + h;
    records[i] = h < heads ? p.records + record * p.sizes.record_floats : nullptr;
  }
  Contribution unused[kCount];
  make_records(unused, p, steps, raw_steps, chunk, spans, lane, records);
}

}  // namespace

cudaError_t launch_prepare(const PrepareParameters& parameters, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(parameters.sizes.chunks),
                  static_cast<unsigned>((parameters.sizes.heads + kHeads - 1) / kHeads));
  prepare<<<grid, kThreads, 0, stream>>>(parameters);
  return cudaGetLastError();
}

}  // namespace stowage::kernels::ssd
