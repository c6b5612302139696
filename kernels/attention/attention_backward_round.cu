// Attention backward, end of the way that makes dq inside: its fp32 sums, scaled and rounded.
//
// Layout: sums (H, padded rows / 64, P / 64) blocks of 64 x 64, thread by thread of a warpgroup's
// accumulators (attention_backward_inside64_sm90.cu); dq (queries, H, P) bf16.
// Cost: one read of 4 bytes and one write of 2 for every element. Deterministic: no sums.
// Design: a block of threads for each block of sums; a warp brings its 16 rows through shared
// memory, so that both sides move 16 bytes at a time.

#include "kernels/attention/attention_fragment.cuh"
#include "kernels/attention/attention_launch.hpp"
#include "kernels/attention/attention_persistent.cuh"
#include "kernels/attention/attention_schedule.cuh"

namespace stowage::kernels::attention {
namespace {

constexpr int kThreads = 128;

template <int kHeadDim>
__global__ void __launch_bounds__(kThreads) attention_backward_round_kernel(RoundParameters p) {
  constexpr int kColumnBlocks = kHeadDim / 64;
  __shared__ alignas(1024) unsigned char staging[kThreads / 32][16 * 128];
  const int warp = static_cast<int>(threadIdx.x / 32);
  join_call();
  const int first = static_cast<int>(blockIdx.x) * 64;
  const int head = static_cast<int>(blockIdx.y) / kColumnBlocks;
  const int columns = static_cast<int>(blockIdx.y) % kColumnBlocks;
  const int document = padded_document(p, first);
  const bool equal = p.uniform_length > 0;
  const int start = equal ? 0 : p.starts[document];
  const int length = equal ? p.uniform_length : p.starts[document + 1] - start;
  const int row = first - padded_first(p, document) + warp * 16;  // in the document
  const int begin = p.queries.first - start - row;                // of these 16, the queries
  const int end = min(length, p.queries.end - start) - row;
  if (end <= 0 || begin >= 16) return;
  const std::int64_t block = (head * (p.padded_rows / 64) + blockIdx.x) * kColumnBlocks + columns;
  const auto* from = reinterpret_cast<const float4*>(p.sums + block * kSumBlock) + threadIdx.x;
  float sums[32];
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float4 four = __ldcs(from + kThreads * j);
    sums[4 * j] = four.x;
    sums[4 * j + 1] = four.y;
    sums[4 * j + 2] = four.z;
    sums[4 * j + 3] = four.w;
  }
  const float scale[2] = {p.scale, p.scale};
  stage_rows<64>(staging[warp], 0, sums, scale);
  __syncwarp();
  const Tile tile{.sequence = equal ? document : 0, .first_row = start};
  auto* dq = static_cast<std::uint16_t*>(p.dq) + element(p.dq_strides, tile, row, head);
  store_rows<64>(dq + columns * 64, p.dq_strides.row, staging[warp], 0, end, begin);
}

template <int kHeadDim>
cudaError_t launch(const RoundParameters& p, cudaStream_t stream) {
  const dim3 blocks(static_cast<unsigned>(p.padded_rows / 64),
                    static_cast<unsigned>(p.heads * (kHeadDim / 64)));
  return hopper::launch_dependent(attention_backward_round_kernel<kHeadDim>, blocks, kThreads, 0,
                                  stream, p);
}

}  // namespace

cudaError_t launch_attention_backward_round(int head_dim, const RoundParameters& parameters,
                                            cudaStream_t stream) {
  return head_dim == 64 ? launch<64>(parameters, stream) : launch<128>(parameters, stream);
}

}  // namespace stowage::kernels::attention
